-- The end of an attempt without success: reported, the lease is over, the transaction was rolled back, the reader died.
-- Takes, Gives, Errors, Locks: see each function

-- The pause before the next attempt, in microseconds, also at a conversation group. The jitter is made of the job's id and the
-- attempt, so that every store gives the same pause; it only has to differ from job to job.
CREATE OR REPLACE FUNCTION dialoq.retry_delay_us(
    p_delay_ms bigint, p_factor_percent bigint, p_most_ms bigint, p_jitter_percent bigint, p_job_id bigint, p_attempts integer)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_most bigint := p_most_ms * 1000;
    v_delay bigint := least(p_delay_ms, p_most_ms) * 1000;
    v_spread bigint;
BEGIN
    FOR v_attempt IN 2..p_attempts LOOP
        EXIT WHEN v_delay >= v_most OR v_delay = 0 OR p_factor_percent = 100;
        v_delay := least(v_delay * p_factor_percent / 100, v_most);
    END LOOP;
    v_spread := ((p_job_id % 1000003) * 7919 + p_attempts * 104729::bigint) % 2001;
    RETURN least(v_delay + v_delay / 1000 * (v_spread - 1000) / 100 * p_jitter_percent, v_most);
END $$;

-- The attempt at a taken job has failed. The caller has locked the row.
-- Takes: the job, why, the pause before the next attempt (NULL: as the queue's settings say), whether there is no next one
-- Gives: the state after it; notices
CREATE OR REPLACE FUNCTION dialoq.fail_attempt(
    p_job_id bigint, p_reason text, p_retry_in_ms bigint, p_is_last boolean, p_now timestamptz, OUT state smallint, OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    j record;
    q dialoq.work_queue;
    v_delay bigint;
BEGIN
    SELECT f.queue_id, f.attempts INTO j FROM dialoq.job AS f WHERE f.job_id = p_job_id;
    SELECT * INTO q FROM dialoq.work_queue AS w WHERE w.queue_id = j.queue_id;
    IF q.queue_id IS NULL OR j.attempts >= q.max_attempts OR p_is_last IS TRUE THEN
        state := 3;
    ELSE
        v_delay := coalesce(p_retry_in_ms * 1000, dialoq.retry_delay_us(
            q.retry_delay_ms, q.retry_factor_percent, q.max_retry_delay_ms, q.retry_jitter_percent, p_job_id, j.attempts));
        state := CASE v_delay WHEN 0 THEN 1 ELSE 0 END;
    END IF;
    UPDATE dialoq.job AS f
    SET state = fail_attempt.state, due_at = CASE fail_attempt.state WHEN 0 THEN p_now + v_delay * interval '1 microsecond' END,
        last_error = p_reason, failed_at = p_now, process = NULL, holder = NULL
    WHERE f.job_id = p_job_id;
    notices := concat_ws(' ', CASE WHEN state = 1 OR dialoq.is_limited(q) THEN 'q:' || j.queue_id::text END,
        CASE WHEN state = 0 THEN dialoq.due_notice(p_now + v_delay * interval '1 microsecond') END);
END $$;

-- Gives a taken job back as if it had not been taken. The caller has locked the row.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.return_job(p_job_id bigint) RETURNS text
LANGUAGE sql AS $$
    UPDATE dialoq.job AS j
    SET state = 1, attempts = j.attempts - 1, due_at = NULL, process = NULL, holder = NULL
    WHERE j.job_id = p_job_id
    RETURNING 'q:' || j.queue_id::text
$$;
