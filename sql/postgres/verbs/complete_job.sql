-- COMPLETE: a taken job is done.
-- Takes: the job and the token of its taking; the result, kept with its history (NULL: none)
-- Gives: notices
-- Errors: 8459, 60040, 60041, 60042, 60043
-- Locks: the job, waiting 100 ms at most
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.complete_job(p_job_id bigint, p_token bigint, p_result bytea DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_now timestamptz := dialoq.current_time_utc();
    j record;
    f record;
BEGIN
    j := dialoq.lock_job(p_job_id, p_token, v_now);
    IF octet_length(p_result) > 1000000000 THEN
        PERFORM dialoq.check_bytes('the result of a job', p_result);
    END IF;
    f := dialoq.finish_jobs(ARRAY[j.place], 4, ARRAY[p_result], v_now);
    notices := dialoq.publish_notices(f.notices);
    RETURN NEXT;
END $$;
