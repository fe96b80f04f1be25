-- Who holds a job: a lease, or a transaction. A transaction of a Dialoq client holds the jobs whose column holder has its
-- id: its process took them in a short transaction of its own, so that the attempt counts even if the process dies. Any
-- other transaction holds what it has locked.
-- Takes, Gives, Errors, Locks: see each function

-- Whether a holder is the transaction that calls.
CREATE OR REPLACE FUNCTION dialoq.is_own_holder(p_holder uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT p_holder::text = current_setting('dialoq.holder', true)
$$;

-- Begins a transaction that takes jobs for others.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.begin_claim() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        PERFORM dialoq.fail(60005, 'jobs were claimed in a transaction that has written something; a claim must not be undone with '
            'other work; claim outside');
    END IF;
    -- If the server falls before this is on its disk, the transactions that hold the jobs are gone too.
    PERFORM set_config('synchronous_commit', 'off', true);
END $$;

-- Locks a job that the caller may change. A refusal leaves no lock for a moment, in which a take would pass the job over: so
-- a row is locked only if nothing is wrong with it.
-- Takes: the job; the token of its taking and the time, if it is to be reported on (NULL: it is not)
-- Gives: where its row is, and of the row what its callers need
-- Errors: 60040, 60043; with a token 60041, 60042
CREATE OR REPLACE FUNCTION dialoq.lock_job(
    p_job_id bigint, p_token bigint, p_now timestamptz, OUT place tid, OUT queue_id integer, OUT state smallint, OUT due_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    j record;
    v_is_free boolean;
    v_timeout text;
BEGIN
    PERFORM dialoq.check_isolation();
    SELECT f.ctid, f.queue_id, f.state, f.due_at INTO place, queue_id, state, due_at
    FROM dialoq.job AS f
    WHERE f.job_id = p_job_id AND (f.holder IS NULL OR dialoq.is_own_holder(f.holder))
        AND (p_now IS NULL OR f.token = p_token AND f.state = 2 AND (f.holder IS NOT NULL OR f.due_at > p_now))
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN;
    END IF;
    -- A take of another session that read the row just before this job was taken has locked it too, although it passes it over,
    -- and keeps the lock until its commit. That is short, so it is waited for; a transaction that stays open is not.
    v_timeout := current_setting('lock_timeout');
    BEGIN
        PERFORM set_config('lock_timeout', '100ms', true);
        SELECT f.ctid, f.queue_id, f.state, f.due_at INTO place, queue_id, state, due_at
        FROM dialoq.job AS f
        WHERE f.job_id = p_job_id AND (f.holder IS NULL OR dialoq.is_own_holder(f.holder))
            AND (p_now IS NULL OR f.token = p_token AND f.state = 2 AND (f.holder IS NOT NULL OR f.due_at > p_now))
        FOR UPDATE;
        IF FOUND THEN
            PERFORM set_config('lock_timeout', v_timeout, true);
            RETURN;
        END IF;
        PERFORM set_config('lock_timeout', v_timeout, true);
    EXCEPTION WHEN lock_not_available THEN
        NULL;
    END;
    SELECT f.token, f.state, f.holder, f.due_at INTO j FROM dialoq.job AS f WHERE f.job_id = p_job_id;
    IF NOT FOUND THEN
        PERFORM dialoq.fail(60040, format('job %s was not found: it was never pushed, or it is finished', p_job_id));
    ELSIF j.holder IS NOT NULL AND dialoq.is_own_holder(j.holder) IS NOT TRUE THEN
        PERFORM dialoq.fail(60043, format('job %s is held by an open transaction', p_job_id));
    END IF;
    -- Whether another session has locked the row; the lock goes with the subtransaction.
    BEGIN
        PERFORM FROM dialoq.job AS f WHERE f.job_id = p_job_id FOR UPDATE SKIP LOCKED;
        v_is_free := FOUND;
        RAISE EXCEPTION USING ERRCODE = 'SBZZZ';
    EXCEPTION WHEN SQLSTATE 'SBZZZ' THEN
        NULL;
    END;
    IF NOT v_is_free OR p_now IS NULL THEN
        PERFORM dialoq.fail(60043, format('job %s is held by an open transaction', p_job_id));
    ELSIF j.token IS DISTINCT FROM p_token AND j.token = 0 THEN
        PERFORM dialoq.fail(60042, format('job %s is not held with token %s: no reader has taken it yet', p_job_id, p_token));
    ELSIF j.token IS DISTINCT FROM p_token THEN
        PERFORM dialoq.fail(60042, format('the taking of job %s with token %s is over: another attempt has begun since',
            p_job_id, p_token));
    ELSIF j.state <> 2 THEN
        PERFORM dialoq.fail(60041, format('job %s is not taken: its attempt was reported, or has failed', p_job_id));
    ELSE
        PERFORM dialoq.fail(60042, format('the taking of job %s with token %s is over: its lease is over', p_job_id, p_token));
    END IF;
END $$;

-- Scheduled jobs that are due become ready, and leases that are over are failed attempts. Rows that another session has
-- locked are passed over: no lease ends under a transaction that reports on its job.
-- Takes: until when, how many at most, whether each is done by itself, so that one that fails does not keep the others
-- Gives: how many; notices
CREATE OR REPLACE FUNCTION dialoq.run_due_jobs(p_now timestamptz, p_top integer, p_is_alone boolean, OUT did integer, OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    j record;
BEGIN
    did := 0;
    FOR j IN
        SELECT f.job_id, f.state FROM dialoq.job AS f
        WHERE f.due_at <= p_now AND f.holder IS NULL
        ORDER BY f.due_at LIMIT greatest(p_top, 0) FOR UPDATE SKIP LOCKED
    LOOP
        did := did + 1;
        IF p_is_alone THEN
            notices := dialoq.distinct_notices(concat_ws(' ', notices, dialoq.run_due_job_alone(j.job_id, j.state, p_now)));
        ELSE
            notices := dialoq.distinct_notices(concat_ws(' ', notices, dialoq.run_due_job(j.job_id, j.state, p_now)));
        END IF;
    END LOOP;
END $$;

-- One of them.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.run_due_job(p_job_id bigint, p_state smallint, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_notices text;
BEGIN
    IF p_state = 2 THEN
        SELECT f.notices INTO v_notices
        FROM dialoq.fail_attempt(p_job_id, 'its lease was over', NULL, false, p_now) AS f;
    ELSE
        UPDATE dialoq.job AS j SET state = 1, due_at = NULL WHERE j.job_id = p_job_id
        RETURNING 'q:' || j.queue_id INTO v_notices;
    END IF;
    RETURN v_notices;
END $$;

-- The same by itself: a job whose row makes it fail is dead.
CREATE OR REPLACE FUNCTION dialoq.run_due_job_alone(p_job_id bigint, p_state smallint, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_why text;
BEGIN
    RETURN dialoq.run_due_job(p_job_id, p_state, p_now);
EXCEPTION
    WHEN transaction_rollback OR insufficient_resources OR object_not_in_prerequisite_state OR operator_intervention
        OR system_error THEN
        RAISE;
    WHEN others THEN
        GET STACKED DIAGNOSTICS v_why = MESSAGE_TEXT;
        RAISE WARNING 'dialoq: job % is dead, because its row is damaged: %', p_job_id, v_why;
        UPDATE dialoq.job AS j
        SET state = 3, due_at = NULL, process = NULL, holder = NULL, last_error = 'its row is damaged: ' || left(v_why, 2000)
        WHERE j.job_id = p_job_id;
        RETURN NULL;
END $$;

-- Fails the attempts of processes that have ended: their transactions are gone, or will not commit, because the commit
-- finds its jobs no longer held.
-- Gives: how many; notices
CREATE OR REPLACE FUNCTION dialoq.fail_jobs_of_dead_processes(p_now timestamptz, p_top integer, OUT did integer, OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_process uuid;
    v_id bigint;
BEGIN
    did := 0;
    LOOP
        -- One after the other, so that many jobs of few processes are not all read.
        SELECT j.process INTO v_process
        FROM dialoq.job AS j
        WHERE j.process IS NOT NULL AND (v_process IS NULL OR j.process > v_process)
        ORDER BY j.process LIMIT 1;
        EXIT WHEN NOT FOUND OR did >= p_top;
        CONTINUE WHEN NOT dialoq.is_process_gone(v_process);
        FOR v_id IN
            SELECT j.job_id FROM dialoq.job AS j WHERE j.process = v_process
            ORDER BY j.process, j.holder LIMIT greatest(p_top - did, 0) FOR UPDATE SKIP LOCKED
        LOOP
            did := did + 1;
            SELECT dialoq.distinct_notices(concat_ws(' ', fail_jobs_of_dead_processes.notices, f.notices)) INTO notices
            FROM dialoq.fail_attempt(v_id, 'its reader ended before its transaction did', NULL, false, p_now) AS f;
        END LOOP;
    END LOOP;
END $$;
