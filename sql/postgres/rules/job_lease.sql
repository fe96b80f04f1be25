-- Who holds a job: a lease, or a transaction. A transaction of a Dialoq client holds the jobs whose column holder has its
-- id: its process took them in a short transaction of its own, so that the attempt counts even if the process dies. Any
-- other transaction holds what it has locked.
-- Takes, Gives, Errors, Locks: see each function

-- Whether a holder is the transaction that calls.
CREATE OR REPLACE FUNCTION dialoq.is_own_holder(p_holder uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT p_holder::text = current_setting('dialoq.holder', true)
$$;

-- Notes that this transaction has reported on a leased job and holds it by the lock of its row. A rollback to a savepoint before undoes
-- the note as it frees the lock. A session that notes a job itself still needs its row and the token of its latest taking.
CREATE OR REPLACE FUNCTION dialoq.note_held_job(p_job_id bigint, p_token bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF dialoq.is_held_job(p_job_id, p_token) IS NOT TRUE THEN
        PERFORM set_config('dialoq.held_jobs', concat(current_setting('dialoq.held_jobs', true), ' ', p_job_id, ':', p_token, ' '), true);
    END IF;
END $$;

-- Whether it has: then the lease of the job does not end before the transaction does.
CREATE OR REPLACE FUNCTION dialoq.is_held_job(p_job_id bigint, p_token bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT strpos(current_setting('dialoq.held_jobs', true), concat(' ', p_job_id, ':', p_token, ' ')) > 0
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
    -- If the server falls before this is on its disk, the transactions that hold the jobs are gone too. Their tokens do not
    -- come again: reserve_tokens.
    PERFORM set_config('synchronous_commit', 'off', true);
END $$;

-- Lets the rest of this transaction hand out tokens that never come again, even if the server falls before its commit is on
-- the disk: they are below a mark that was on the disk before. The mark is a million tokens ahead at least, more than takes
-- that are under way hand out.
CREATE OR REPLACE FUNCTION dialoq.reserve_tokens() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_ahead bigint;
    v_mark bigint;
    v_last bigint;
BEGIN
    SELECT r.mark - s.last_value INTO v_ahead FROM dialoq.job_token_run AS r, dialoq.next_job_token AS s;
    IF v_ahead > 1000000 THEN
        RETURN;
    ELSIF NOT dialoq.is_client_call() THEN
        -- A transaction of plain SQL may stay open: the lock of the mark would stop every take of every queue until its end. Its own
        -- commit brings its tokens to the disk, so they need not be below the mark. They must be above all that were given before
        -- the server fell. A sequence goes on although its transaction is rolled back, and the end of the block frees the lock.
        IF v_ahead IS NULL AND (SELECT s.last_value FROM dialoq.next_job_token AS s) < (SELECT m.mark FROM dialoq.job_token_mark AS m) THEN
            BEGIN
                SELECT m.mark INTO v_mark FROM dialoq.job_token_mark AS m FOR UPDATE;
                SELECT s.last_value INTO v_last FROM dialoq.next_job_token AS s;
                -- Another session may have done it meanwhile.
                IF v_last < v_mark AND NOT EXISTS (SELECT FROM dialoq.job_token_run) THEN
                    v_last := setval('dialoq.next_job_token', v_mark);
                END IF;
                RAISE EXCEPTION USING ERRCODE = 'SBZZZ';
            EXCEPTION WHEN SQLSTATE 'SBZZZ' THEN
                NULL;
            END;
        END IF;
        PERFORM dialoq.commit_durably();
        RETURN;
    END IF;
    LOOP
        SELECT m.mark INTO v_mark FROM dialoq.job_token_mark AS m FOR UPDATE SKIP LOCKED;
        EXIT WHEN FOUND;
        -- Another session does it. A member may call itself a client and keep its transaction open, so this goes on as plain SQL does,
        -- once that session has raised the sequence after a fall.
        IF v_ahead IS NOT NULL OR (SELECT s.last_value FROM dialoq.next_job_token AS s) >= (SELECT m.mark FROM dialoq.job_token_mark AS m) THEN
            PERFORM dialoq.commit_durably();
            RETURN;
        END IF;
        PERFORM pg_sleep(0.001);
    END LOOP;
    -- Another session may have done it meanwhile.
    SELECT r.mark - s.last_value INTO v_ahead FROM dialoq.job_token_run AS r, dialoq.next_job_token AS s;
    IF v_ahead > 1000000 THEN
        RETURN;
    END IF;
    SELECT s.last_value INTO v_last FROM dialoq.next_job_token AS s;
    IF v_ahead IS NULL AND v_last < v_mark THEN
        -- The server has fallen, or this is a copy of its files. pg_dump copies job_token_run too.
        v_last := setval('dialoq.next_job_token', v_mark);
    END IF;
    v_mark := greatest(v_mark, v_last) + 16777216;
    UPDATE dialoq.job_token_mark AS m SET mark = v_mark;
    DELETE FROM dialoq.job_token_run;
    INSERT INTO dialoq.job_token_run (mark) VALUES (v_mark);
    PERFORM dialoq.commit_durably();
END $$;

-- The commit of this transaction is on the disk before it is answered.
CREATE OR REPLACE FUNCTION dialoq.commit_durably() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Gives back the jobs of a claim whose answer was lost: those that the transaction holds under later tokens than it knows.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.return_lost_claims(p_process uuid, p_holders uuid[], p_last_tokens bigint[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
    v_notices text;
BEGIN
    -- Nearly no transaction holds jobs when it takes, and this search costs half of the one below. One for each holder: with
    -- holder = ANY the server read all that the process holds, and all that it has held since an old snapshot.
    IF NOT EXISTS (
        SELECT FROM unnest(p_holders) AS h (holder)
        CROSS JOIN LATERAL (SELECT FROM dialoq.job AS f WHERE f.process = p_process AND f.holder = h.holder LIMIT 1) AS f)
    THEN
        RETURN NULL;
    END IF;
    -- Locked before they are changed: another call may give the same jobs back, and they may be taken again then.
    FOR v_id IN
        SELECT j.job_id
        FROM unnest(p_holders, p_last_tokens) AS h (holder, last_token)
        CROSS JOIN LATERAL (
            SELECT f.job_id FROM dialoq.job AS f
            WHERE f.process = p_process AND f.holder = h.holder AND f.token > h.last_token FOR UPDATE SKIP LOCKED) AS j
    LOOP
        v_notices := dialoq.distinct_notices(concat_ws(' ', v_notices, dialoq.return_job(v_id)));
    END LOOP;
    RETURN v_notices;
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
    v_timeout text;
BEGIN
    IF NOT dialoq.is_read_committed() THEN
        PERFORM dialoq.check_isolation();
    END IF;
    -- Again if what was in the way has gone since: the session that held the row may roll back between the wait and the check.
    FOR v_try IN 1..10 LOOP
        SELECT f.ctid, f.queue_id, f.state, f.due_at INTO place, queue_id, state, due_at
        FROM dialoq.job AS f
        WHERE f.job_id = p_job_id AND (f.holder IS NULL OR dialoq.is_own_holder(f.holder))
            AND (p_now IS NULL OR f.token = p_token AND f.state = 2
                AND (f.holder IS NOT NULL OR f.due_at > p_now OR dialoq.is_held_job(p_job_id, p_token)))
        FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN;
        END IF;
        -- A take of another session that read the row just before this job was taken has locked it too, although it passes it
        -- over, and keeps the lock until its commit. That is short, so it is waited for; a transaction that stays open is not.
        v_timeout := current_setting('lock_timeout');
        BEGIN
            PERFORM set_config('lock_timeout', '100ms', true);
            SELECT f.ctid, f.queue_id, f.state, f.due_at INTO place, queue_id, state, due_at
            FROM dialoq.job AS f
            WHERE f.job_id = p_job_id AND (f.holder IS NULL OR dialoq.is_own_holder(f.holder))
                AND (p_now IS NULL OR f.token = p_token AND f.state = 2
                    AND (f.holder IS NOT NULL OR f.due_at > p_now OR dialoq.is_held_job(p_job_id, p_token)))
            FOR UPDATE;
            IF FOUND THEN
                PERFORM set_config('lock_timeout', v_timeout, true);
                RETURN;
            END IF;
            PERFORM set_config('lock_timeout', v_timeout, true);
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
        PERFORM dialoq.check_job(p_job_id, p_token, p_now);
    END LOOP;
    PERFORM dialoq.job_is_held(p_job_id);
END $$;

-- Refuses a verb on a job that lock_job has not locked; does nothing if the job may be locked now.
-- Takes, Errors: as lock_job
CREATE OR REPLACE FUNCTION dialoq.check_job(p_job_id bigint, p_token bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    j record;
    v_is_free boolean;
BEGIN
    -- Read under its lock, so that it is as the last session left it; the lock goes with the subtransaction.
    BEGIN
        SELECT f.token, f.state, f.holder, f.due_at INTO j FROM dialoq.job AS f WHERE f.job_id = p_job_id FOR UPDATE SKIP LOCKED;
        v_is_free := FOUND;
        RAISE EXCEPTION USING ERRCODE = 'SBZZZ';
    EXCEPTION WHEN SQLSTATE 'SBZZZ' THEN
        NULL;
    END;
    IF NOT v_is_free THEN
        PERFORM FROM dialoq.job AS f WHERE f.job_id = p_job_id;
        IF FOUND THEN
            PERFORM dialoq.job_is_held(p_job_id);
        END IF;
        PERFORM dialoq.fail(60040, format('job %s was not found: it was never pushed, or it is finished', p_job_id));
    ELSIF j.holder IS NOT NULL AND dialoq.is_own_holder(j.holder) IS NOT TRUE THEN
        PERFORM dialoq.job_is_held(p_job_id);
    ELSIF p_now IS NULL THEN
        RETURN;
    ELSIF j.token = 0 THEN
        PERFORM dialoq.fail(60042, format('job %s is not held with token %s: no reader has taken it yet', p_job_id, p_token));
    ELSIF j.token IS DISTINCT FROM p_token THEN
        PERFORM dialoq.fail(60042, format('the taking of job %s with token %s is over, or never was: the latest has another',
            p_job_id, p_token));
    ELSIF j.state <> 2 THEN
        PERFORM dialoq.fail(60041, format('job %s is not taken: its attempt was reported, or has failed', p_job_id));
    ELSIF j.holder IS NULL AND j.due_at <= p_now AND dialoq.is_held_job(p_job_id, p_token) IS NOT TRUE THEN
        PERFORM dialoq.fail(60042, format('the taking of job %s with token %s is over: its lease is over', p_job_id, p_token));
    END IF;
END $$;

-- Refuses a verb on a job that another transaction holds.
-- Errors: 60043
CREATE OR REPLACE FUNCTION dialoq.job_is_held(p_job_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dialoq.fail(60043, format('job %s is held by an open transaction', p_job_id));
END $$;

-- Locks a job that the caller may change, if it is still as a look at its queue found it.
-- Takes: the job; the token that it had (NULL: it may have changed); the name of its state (NULL: any)
-- Gives: as lock_job
-- Errors: 60040, 60042, 60043
CREATE OR REPLACE FUNCTION dialoq.lock_seen_job(
    p_job_id bigint, p_seen_token bigint, p_seen_state text, OUT place tid, OUT queue_id integer, OUT state smallint)
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz;
BEGIN
    IF p_seen_token IS NULL AND p_seen_state IS NULL THEN
        SELECT l.place, l.queue_id, l.state INTO place, queue_id, state FROM dialoq.lock_job(p_job_id, NULL, NULL) AS l;
        RETURN;
    END IF;
    BEGIN
        SELECT l.place, l.queue_id, l.state INTO place, queue_id, state FROM dialoq.lock_job(p_job_id, NULL, NULL) AS l;
        v_now := dialoq.current_time_utc();
        PERFORM FROM dialoq.job AS j
        WHERE j.job_id = p_job_id AND (p_seen_token IS NULL OR j.token = p_seen_token)
            AND (p_seen_state IS NULL OR p_seen_state = CASE
                WHEN j.state = 0 AND j.due_at > v_now THEN 'scheduled'
                WHEN j.state IN (0, 1) THEN 'ready'
                WHEN j.state = 2 AND j.due_at <= v_now THEN 'lost'
                WHEN j.state = 2 THEN 'taken'
                ELSE 'dead' END);
        IF NOT FOUND THEN
            -- Its lock goes with the subtransaction, as in lock_job.
            RAISE EXCEPTION USING ERRCODE = 'SBZZZ';
        END IF;
    EXCEPTION WHEN SQLSTATE 'SBZZZ' THEN
        PERFORM dialoq.fail(60042, format('job %s has changed since it was looked at; look again', p_job_id));
    END;
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
        RETURN dialoq.end_attempt(p_job_id, 'its lease was over', p_now);
    END IF;
    UPDATE dialoq.job AS j SET state = 1, due_at = NULL WHERE j.job_id = p_job_id
    RETURNING 'q:' || j.queue_id::text INTO v_notices;
    RETURN v_notices;
END $$;

-- The same by itself: a job whose row makes it fail is dead.
CREATE OR REPLACE FUNCTION dialoq.run_due_job_alone(p_job_id bigint, p_state smallint, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN dialoq.run_due_job(p_job_id, p_state, p_now);
EXCEPTION
    WHEN transaction_rollback OR insufficient_resources OR object_not_in_prerequisite_state OR operator_intervention
        OR system_error THEN
        RAISE;
    WHEN others THEN
        RETURN dialoq.bury_damaged_job(p_job_id, SQLERRM);
END $$;

-- An attempt ends without success.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.end_attempt(p_job_id bigint, p_reason text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT f.notices FROM dialoq.fail_attempt(p_job_id, p_reason, NULL, false, p_now) AS f);
END $$;

-- The same by itself: a job whose row makes it fail is dead.
CREATE OR REPLACE FUNCTION dialoq.end_attempt_alone(p_job_id bigint, p_reason text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN dialoq.end_attempt(p_job_id, p_reason, p_now);
EXCEPTION
    WHEN transaction_rollback OR insufficient_resources OR object_not_in_prerequisite_state OR operator_intervention
        OR system_error THEN
        RAISE;
    WHEN others THEN
        RETURN dialoq.bury_damaged_job(p_job_id, SQLERRM);
END $$;

-- A job whose row makes a background step fail is dead.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.bury_damaged_job(p_job_id bigint, p_why text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_notices text;
BEGIN
    RAISE WARNING 'dialoq: job % is dead, because its row is damaged: %', p_job_id, p_why;
    UPDATE dialoq.job AS j
    SET state = 3, due_at = NULL, process = NULL, holder = NULL, last_error = 'its row is damaged: ' || left(p_why, 2000)
    WHERE j.job_id = p_job_id
    RETURNING 'q:' || j.queue_id::text INTO v_notices;
    RETURN v_notices;
END $$;

-- Fails the attempts of processes that have ended: their transactions are gone, or will not commit, because the commit
-- finds its jobs no longer held. One call looks at 200 processes, in an order that no row can hold up, as forget_dead_processes: a
-- member may invent processes, and keep the rows of their jobs locked.
-- Takes: the time, how many at most, whether each is done by itself, so that one that fails does not keep the others
-- Gives: how many; notices
CREATE OR REPLACE FUNCTION dialoq.fail_jobs_of_dead_processes(
    p_now timestamptz, p_top integer, p_is_alone boolean, OUT did integer, OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_process uuid;
    v_id bigint;
BEGIN
    did := 0;
    FOR v_process IN
        -- From one to the next, so that many jobs of few processes are not all read.
        WITH RECURSIVE holder AS (
            (SELECT j.process FROM dialoq.job AS j WHERE j.process IS NOT NULL ORDER BY j.process LIMIT 1)
            UNION ALL
            SELECT (SELECT j.process FROM dialoq.job AS j WHERE j.process > h.process ORDER BY j.process LIMIT 1)
            FROM holder AS h WHERE h.process IS NOT NULL
        )
        SELECT h.process FROM holder AS h WHERE h.process IS NOT NULL ORDER BY random() LIMIT 200
    LOOP
        EXIT WHEN did >= p_top;
        CONTINUE WHEN NOT dialoq.is_process_gone(v_process);
        FOR v_id IN
            SELECT j.job_id FROM dialoq.job AS j WHERE j.process = v_process
            ORDER BY j.process, j.holder LIMIT greatest(p_top - did, 0) FOR UPDATE SKIP LOCKED
        LOOP
            did := did + 1;
            notices := dialoq.distinct_notices(concat_ws(' ', notices, CASE
                WHEN p_is_alone THEN dialoq.end_attempt_alone(v_id, 'its reader ended before its transaction did', p_now)
                ELSE dialoq.end_attempt(v_id, 'its reader ended before its transaction did', p_now) END));
        END LOOP;
    END LOOP;
END $$;
