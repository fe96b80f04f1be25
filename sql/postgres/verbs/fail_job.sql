-- FAIL: an attempt at a taken job failed.
-- Takes: the job and the token of its taking; why, 3000 characters at most; the pause before the next attempt in milliseconds
--     (NULL: as the settings of the queue say); whether there is no next attempt
-- Gives: job_state, the state after it: scheduled, ready or dead; notices
-- Errors: 60005, 60040, 60041, 60042, 60043
-- Locks: the job, waiting 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.fail_job(
    p_job_id bigint, p_token bigint, p_reason text DEFAULT '', p_retry_in_ms bigint DEFAULT NULL, p_is_last boolean DEFAULT false)
RETURNS TABLE (job_state text, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_now timestamptz := dialoq.current_time_utc();
BEGIN
    PERFORM dialoq.check_length('the reason of a failure', p_reason, 3000);
    PERFORM dialoq.check_delay('the delay of the next attempt in milliseconds', p_retry_in_ms, 0);
    PERFORM dialoq.lock_job(p_job_id, p_token, v_now);
    RETURN QUERY
    SELECT (ARRAY['scheduled', 'ready', 'taken', 'dead'])[f.state + 1], dialoq.publish_notices(f.notices)
    FROM dialoq.fail_attempt(p_job_id, coalesce(p_reason, ''), p_retry_in_ms, p_is_last, v_now) AS f;
END $$;
