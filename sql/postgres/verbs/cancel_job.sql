-- CANCEL: a job leaves its queue without being done. The reader of a leased job learns it from its next report.
-- Takes: the job; of a job that a look at its queue found, the token that it had and, if it matters, the name of its state
-- Gives: notices
-- Errors: 60040, 60042, 60043
-- Locks: the job, waiting 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.cancel_job(p_job_id bigint, p_seen_token bigint DEFAULT NULL, p_seen_state text DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    j record;
BEGIN
    SELECT * INTO j FROM dialoq.lock_seen_job(p_job_id, p_seen_token, p_seen_state) AS l;
    RETURN QUERY
    SELECT dialoq.publish_notices(f.notices)
    FROM dialoq.finish_jobs(ARRAY[j.place], 5, NULL, dialoq.current_time_utc()) AS f;
END $$;
