-- EXTEND: prolongs the lease of a taken job. A job that a transaction holds has none, and needs none.
-- Takes: the job and the token of its taking; milliseconds from now (NULL: LEASE_MS of the queue)
-- Gives: notices
-- Errors: 60005, 60040, 60041, 60042, 60043
-- Locks: the job, waiting 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.extend_job(p_job_id bigint, p_token bigint, p_lease_ms bigint DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_now timestamptz := dialoq.current_time_utc();
    j record;
    v_until timestamptz;
BEGIN
    PERFORM dialoq.check_delay('a lease in milliseconds', p_lease_ms, 1);
    SELECT * INTO j FROM dialoq.lock_job(p_job_id, p_token, v_now) AS l;
    IF j.due_at IS NULL THEN
        RETURN;
    END IF;
    PERFORM dialoq.note_held_job(p_job_id, p_token);
    UPDATE dialoq.job AS f
    SET due_at = v_now + coalesce(p_lease_ms, (SELECT q.lease_ms FROM dialoq.work_queue AS q WHERE q.queue_id = j.queue_id), 60000)
        * interval '1 millisecond'
    WHERE f.job_id = p_job_id
    RETURNING f.due_at INTO v_until;
    -- Every process looks for what is due once a minute.
    RETURN QUERY SELECT dialoq.publish_notices(CASE WHEN v_until < v_now + interval '1 minute' THEN dialoq.due_notice(v_until) END);
END $$;
