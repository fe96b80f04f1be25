-- COMPLETEs of different callers in one transaction. One that is refused leaves the others alone.
-- Takes: for each the job, the token of its taking and the result, as complete_job
-- Gives: the items, from 0, that were not completed: complete_job says why; notices in the first row; one row without an item if
--     all were
-- Errors: 8459, 60005, 60026: then none is completed
-- Locks: the jobs, passing over those that others hold
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.complete_job_batch(p_job_ids bigint[], p_tokens bigint[], p_results bytea[])
RETURNS TABLE (item integer, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_count integer := cardinality(p_job_ids);
    v_now timestamptz;
    v_rows tid[];
    v_done record;
BEGIN
    IF v_count = 0 THEN
        RETURN;
    ELSIF (dialoq.is_column(p_job_ids, v_count) AND dialoq.is_column(p_tokens, v_count)
        AND dialoq.is_column(p_results, v_count)) IS NOT TRUE
    THEN
        PERFORM dialoq.refuse_columns('complete_job_batch');
    END IF;
    PERFORM dialoq.check_isolation();
    PERFORM dialoq.check_bytes('the result of a job', r.result) FROM unnest(p_results) AS r (result) WHERE octet_length(r.result) > 1000000000;
    v_now := dialoq.current_time_utc();
    -- NULL where there is nothing to complete. The second of two reports on one job finds no row, when the first has deleted it.
    v_rows := ARRAY(
        SELECT j.ctid
        FROM unnest(p_job_ids, p_tokens) WITH ORDINALITY AS i (job_id, token, place)
        LEFT JOIN LATERAL (
            SELECT f.ctid FROM dialoq.job AS f
            WHERE f.job_id = i.job_id AND f.token = i.token AND f.state = 2 AND f.holder IS NULL AND f.due_at > v_now
            FOR UPDATE SKIP LOCKED) AS j ON true
        ORDER BY i.place);
    SELECT * INTO v_done FROM dialoq.finish_jobs(v_rows, 4, p_results, v_now);
    v_done.notices := dialoq.publish_notices(v_done.notices);
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
