-- REDRIVE: a dead job gets all its attempts again.
-- Takes: the job; of a job that a look at its queue found, the token that it had and, if it matters, the name of its state
-- Gives: notices
-- Errors: 60040, 60042, 60043, 60044
-- Locks: the job, waiting 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.redrive_job(p_job_id bigint, p_seen_token bigint DEFAULT NULL, p_seen_state text DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    j record;
BEGIN
    BEGIN
        SELECT * INTO j FROM dialoq.lock_seen_job(p_job_id, p_seen_token, p_seen_state) AS l;
        IF j.state <> 3 THEN
            RAISE EXCEPTION USING ERRCODE = 'SBZZZ';
        END IF;
    EXCEPTION WHEN SQLSTATE 'SBZZZ' THEN
        -- Its lock has gone with the subtransaction, as in lock_job.
        PERFORM dialoq.fail(60044, format('job %s is %s, not dead', p_job_id, (ARRAY['scheduled', 'ready', 'taken'])[j.state + 1]));
    END;
    UPDATE dialoq.job AS f SET state = 1, attempts = 0, due_at = NULL WHERE f.job_id = p_job_id;
    RETURN QUERY SELECT dialoq.publish_notices('q:' || j.queue_id::text);
END $$;
