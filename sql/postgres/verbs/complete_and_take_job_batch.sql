-- complete_and_take_job of different callers from one work queue in one transaction. A caller whose completion is refused gets no
-- job, and the others go on.
-- Takes: for each caller the job, the token of its taking and the result, as complete_job_batch; the queue and the type; for each
--     caller how many jobs at most, the length of its leases and the reader's name, and where the search begins, as take_job_batch
-- Gives: the jobs as take_job_batch; a row without a job for each caller, by its place, whose job was not completed:
--     complete_and_take_job says why; notices
-- Errors: 8459, 60002, 60005, 60026, 60043: then none is completed
-- Locks: as complete_job_batch, then as take_job_batch
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.complete_and_take_job_batch(
    p_job_ids bigint[], p_tokens bigint[], p_results bytea[], p_queue text, p_job_type text, p_job_counts bigint[],
    p_leases_ms bigint[], p_taken_by text[], p_from_order bigint DEFAULT NULL)
RETURNS TABLE (
    item integer, job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count integer := cardinality(p_job_ids);
    v_refused integer[];
    v_done integer[];
    v_notices text;
BEGIN
    IF v_count = 0 THEN
        RETURN;
    ELSIF (dialoq.is_column(p_job_ids, v_count) AND dialoq.is_column(p_tokens, v_count) AND dialoq.is_column(p_results, v_count)
        AND dialoq.is_column(p_job_counts, v_count) AND dialoq.is_column(p_leases_ms, v_count)
        AND dialoq.is_column(p_taken_by, v_count)) IS NOT TRUE
    THEN
        PERFORM dialoq.refuse_columns('complete_and_take_job_batch');
    END IF;
    SELECT array_agg(c.item) FILTER (WHERE c.item IS NOT NULL), max(c.notices) INTO v_refused, v_notices
    FROM dialoq.complete_job_batch(p_job_ids, p_tokens, p_results) AS c;
    IF v_refused IS NULL THEN
        RETURN QUERY SELECT * FROM dialoq.take_job_batch(p_queue, p_job_type, p_job_counts, p_leases_ms, p_taken_by, p_from_order);
    ELSE
        v_done := ARRAY(SELECT c.place FROM generate_series(0, v_count - 1) AS c (place) WHERE c.place <> ALL (v_refused) ORDER BY c.place);
        RETURN QUERY
        SELECT v_done[t.item + 1], t.job_id, t.token, t.queue, t.job_type, t.job_key, t.level, t.attempt, t.pushed_at, t.pushed_by,
            t.lease_until, t.last_error, t.body, t.notices
        FROM dialoq.take_job_batch(p_queue, p_job_type,
            ARRAY(SELECT p_job_counts[d.place + 1] FROM unnest(v_done) WITH ORDINALITY AS d (place, nr) ORDER BY d.nr),
            ARRAY(SELECT p_leases_ms[d.place + 1] FROM unnest(v_done) WITH ORDINALITY AS d (place, nr) ORDER BY d.nr),
            ARRAY(SELECT p_taken_by[d.place + 1] FROM unnest(v_done) WITH ORDINALITY AS d (place, nr) ORDER BY d.nr),
            p_from_order) AS t;
        FOREACH item IN ARRAY v_refused LOOP
            RETURN NEXT;
        END LOOP;
        item := NULL;
    END IF;
    IF v_notices IS NOT NULL AND dialoq.is_client_call() THEN
        notices := v_notices;
        RETURN NEXT;
    END IF;
END $$;
