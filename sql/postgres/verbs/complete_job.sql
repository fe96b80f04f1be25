-- COMPLETE: a taken job is done.
-- Takes: the job and the token of its taking; the result, kept with its history (NULL: none)
-- Gives: notices
-- Errors: 8459, 60040, 60041, 60042, 60043
-- Locks: the job, waiting 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.complete_job(p_job_id bigint, p_token bigint, p_result bytea DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_memoize = off
SET jit = off AS $$
DECLARE
    v_now timestamptz;
    j record;
    f record;
BEGIN
    -- Nearly every job is one of these: no other session has its row, and no unique key goes with it. What these two statements
    -- do not do goes the general way, which has eight.
    IF dialoq.is_read_committed() AND (octet_length(p_result) > 500000000) IS NOT TRUE THEN
        DELETE FROM dialoq.job AS d
        USING (
            SELECT t.ctid AS place, n.now, w.has_history, dialoq.is_limited(w) AS is_limited
            FROM dialoq.job AS t
            CROSS JOIN (SELECT coalesce(b.manual_now, clock_timestamp()) AS now FROM dialoq.broker AS b OFFSET 0) AS n
            JOIN dialoq.work_queue AS w ON w.queue_id = t.queue_id
            -- In a form that names no partial index: its statistics may be those of an empty one.
            WHERE t.job_id = p_job_id AND t.token = p_token AND t.state::integer = 2 AND t.holder IS NULL AND (t.due_at > n.now) IS TRUE
                AND t.unique_key IS NULL
            FOR UPDATE OF t SKIP LOCKED) AS k
        WHERE d.ctid = k.place
        RETURNING d.queue_id, d.level, d.attempts, d.pushed_at, d.taken_at, d.job_type, d.job_key, d.pushed_by, d.taken_by,
            d.last_error, k.now, k.has_history, k.is_limited
        INTO j;
        IF FOUND THEN
            IF j.has_history THEN
                INSERT INTO dialoq.job_history (
                    queue_id, job_id, finished_as, level, attempts, pushed_at, taken_at, finished_at, job_type, job_key, pushed_by,
                    taken_by, last_error, result)
                VALUES (
                    j.queue_id, p_job_id, 4, j.level, j.attempts, j.pushed_at, j.taken_at, j.now, j.job_type, j.job_key, j.pushed_by,
                    j.taken_by, j.last_error, CASE WHEN length(p_result) > 0 THEN p_result END);
            END IF;
            IF j.is_limited THEN
                notices := dialoq.publish_notices('q:' || j.queue_id::text);
            END IF;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    v_now := dialoq.current_time_utc();
    j := dialoq.lock_job(p_job_id, p_token, v_now);
    IF octet_length(p_result) > 500000000 THEN
        PERFORM dialoq.check_bytes('the result of a job', p_result);
    END IF;
    f := dialoq.finish_jobs(ARRAY[j.place], 4, ARRAY[p_result], v_now);
    notices := dialoq.publish_notices(f.notices);
    RETURN NEXT;
END $$;
