-- COMPLETEs of different callers in one transaction. One that is refused leaves the others alone.
-- Takes: for each the job, the token of its taking and the result, as complete_job
-- Gives: the items, from 0, that were not completed: complete_job says why; notices in the first row; one row without an item if
--     all were
-- Errors: 8459, 60005, 60026: then none is completed
-- Locks: the jobs, passing over those that others hold
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.complete_job_batch(p_job_ids bigint[], p_tokens bigint[], p_results bytea[])
RETURNS TABLE (item integer, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_memoize = off
SET jit = off AS $$
DECLARE
    v_count integer := cardinality(p_job_ids);
    v_now timestamptz;
    v_done record;
BEGIN
    IF v_count = 0 THEN
        RETURN;
    ELSIF (dialoq.is_column(p_job_ids, v_count) AND dialoq.is_column(p_tokens, v_count)
        AND dialoq.is_column(p_results, v_count)) IS NOT TRUE
    THEN
        PERFORM dialoq.refuse_columns('complete_job_batch');
    END IF;
    IF NOT dialoq.is_read_committed() THEN
        PERFORM dialoq.check_isolation();
    END IF;
    IF cardinality(array_remove(p_results, NULL)) > 0 THEN
        PERFORM dialoq.check_bytes('the result of a job', r.result) FROM unnest(p_results) AS r (result) WHERE octet_length(r.result) > 500000000;
    END IF;
    -- As current_time_utc.
    SELECT coalesce(b.manual_now, clock_timestamp()) INTO v_now FROM dialoq.broker AS b;
    -- As finish_jobs, with the lock in the same statement: a row that has changed since it began is left, like one that is locked.
    -- Of two reports on one job the second finds no row, when the first has deleted it.
    WITH gone AS (
        DELETE FROM dialoq.job AS j
        USING (
            SELECT i.place, l.row
            FROM unnest(p_job_ids, p_tokens) WITH ORDINALITY AS i (job_id, token, place)
            CROSS JOIN LATERAL (
                SELECT f.ctid AS row FROM dialoq.job AS f
                -- As complete_job.
                WHERE f.job_id = i.job_id AND f.token = i.token AND f.state::integer = 2 AND f.holder IS NULL AND (f.due_at > v_now) IS TRUE
                FOR UPDATE SKIP LOCKED) AS l) AS r
        WHERE j.ctid = r.row
        RETURNING r.place, j.job_id, j.queue_id, j.level, j.attempts, j.pushed_at, j.taken_at, j.job_type, j.job_key,
            j.unique_key, j.pushed_by, j.taken_by, j.last_error
    ), freed AS (
        -- <freed_names>
    ), settings AS MATERIALIZED (
        SELECT s.queue_id, w.has_history, w.is_limited
        FROM (SELECT DISTINCT g.queue_id FROM gone AS g) AS s
        CROSS JOIN LATERAL (
            SELECT q.has_history, dialoq.is_limited(q) AS is_limited FROM dialoq.work_queue AS q WHERE q.queue_id = s.queue_id OFFSET 0) AS w
    ), kept AS (
        INSERT INTO dialoq.job_history (
            queue_id, job_id, finished_as, level, attempts, pushed_at, taken_at, finished_at, job_type, job_key, pushed_by,
            taken_by, last_error, result)
        SELECT g.queue_id, g.job_id, 4, g.level, g.attempts, g.pushed_at, g.taken_at, v_now, g.job_type, g.job_key,
            g.pushed_by, g.taken_by, g.last_error, CASE WHEN length(p_results[g.place]) > 0 THEN p_results[g.place] END
        FROM gone AS g
        JOIN settings AS s ON s.queue_id = g.queue_id
        WHERE s.has_history
    )
    SELECT ARRAY(SELECT g.place FROM gone AS g) AS places,
        (SELECT string_agg('q:' || s.queue_id::text, ' ') FROM settings AS s WHERE s.is_limited) AS notices
    INTO v_done;
    IF v_done.notices IS NOT NULL THEN
        v_done.notices := dialoq.publish_notices(v_done.notices);
    END IF;
    IF cardinality(v_done.places) = v_count THEN
        RETURN QUERY SELECT NULL::integer, v_done.notices;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT p.place::integer - 1, CASE row_number() OVER (ORDER BY p.place) WHEN 1 THEN v_done.notices END
    FROM generate_series(1, v_count) AS p (place)
    WHERE p.place <> ALL (v_done.places)
    ORDER BY p.place;
END $$;
