-- REPORT: notes how far a taken job is.
-- Takes: the job and the token of its taking; the note, 3000 characters at most
-- Gives: nothing
-- Errors: 60005, 60040, 60041, 60042, 60043
-- Locks: the job, waiting 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.report_job(p_job_id bigint, p_token bigint, p_progress text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_due_at timestamptz;
BEGIN
    PERFORM dialoq.check_length('a note of progress', p_progress, 3000);
    SELECT l.due_at INTO v_due_at FROM dialoq.lock_job(p_job_id, p_token, dialoq.current_time_utc()) AS l;
    -- A job that the transaction has taken itself has no lease that could end.
    IF v_due_at IS NOT NULL THEN
        PERFORM dialoq.note_held_job(p_job_id, p_token);
    END IF;
    UPDATE dialoq.job AS j SET progress = p_progress WHERE j.job_id = p_job_id;
END $$;
