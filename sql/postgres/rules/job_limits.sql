-- Limits: how many jobs are taken at a time, and how fast. A limit counts what other takes have committed, so the takes of
-- a queue with limits come one after the other. A queue without limits has no such lock.
-- Takes, Gives, Errors, Locks: see each function

-- Whether a queue has a limit, so that the end of one job may let another one be taken.
CREATE OR REPLACE FUNCTION dialoq.is_limited(q dialoq.work_queue) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT q.work_order = 'FIFO_STRICT' OR q.max_taken + q.max_taken_per_key + q.rate_jobs + q.key_rate_jobs > 0
$$;

-- Whether a queue limits the jobs of a key, other than by its order.
CREATE OR REPLACE FUNCTION dialoq.limits_keys(q dialoq.work_queue) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT q.work_order <> 'FIFO_STRICT' AND q.max_taken_per_key + q.key_rate_jobs > 0
$$;

-- Lets no other session take from a queue with limits, to the end of the transaction. The holder is another take, which is
-- short, or an open transaction of plain SQL that has taken. The server queues the takes that wait. However long their line is,
-- it is waited for while it moves: each holder leaves its number in the row. With a bound of 250 ms, 45 takes of 64 readers
-- got no job from a backlog of 10,000, because each commit took 10 ms.
-- Takes: the queue; the ranks: without a ready job of them no lock is taken, because a lock has to be written
-- Gives: whether this transaction has it now; not if there is no such job, or if the queue is being dropped
-- Errors: 60043 if one transaction keeps the lock for about two seconds
CREATE OR REPLACE FUNCTION dialoq.lock_limits(p_queue_id integer, p_from integer, p_to integer) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_timeout text;
    v_is_there boolean;
    v_holder xid;
    v_next xid;
    v_waits integer := 0;
BEGIN
    PERFORM FROM dialoq.work_limit AS l
    WHERE l.queue_id = p_queue_id AND EXISTS (
        SELECT FROM dialoq.job AS j WHERE j.queue_id = p_queue_id AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to)
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN true;
    END IF;
    v_timeout := current_setting('lock_timeout');
    -- Another take may have got the last job meanwhile.
    WHILE EXISTS (
        SELECT FROM dialoq.job AS j WHERE j.queue_id = p_queue_id AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to)
    LOOP
        IF v_waits > 2 THEN
            PERFORM dialoq.fail(60043, format('takes of work queue ''%s'' come one after the other, and another transaction has taken '
                'from it and has not ended for two seconds', (SELECT w.name FROM dialoq.work_queue AS w WHERE w.queue_id = p_queue_id)));
        END IF;
        BEGIN
            -- Below the time after which the server looks for deadlocks.
            PERFORM set_config('lock_timeout', '900ms', true);
            PERFORM FROM dialoq.work_limit AS l WHERE l.queue_id = p_queue_id FOR UPDATE;
            v_is_there := FOUND;
            PERFORM set_config('lock_timeout', v_timeout, true);
            RETURN v_is_there;
        EXCEPTION WHEN lock_not_available THEN
            NULL;
        END;
        SELECT l.xmax INTO v_next FROM dialoq.work_limit AS l WHERE l.queue_id = p_queue_id;
        v_waits := CASE WHEN v_next = v_holder THEN v_waits + 1 ELSE 1 END;
        v_holder := v_next;
    END LOOP;
    RETURN false;
END $$;

-- The time between two jobs of a rate, in microseconds; rounded up, so that no time has more jobs than the rate.
CREATE OR REPLACE FUNCTION dialoq.rate_gap(p_jobs bigint, p_rate_ms bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (p_rate_ms * 1000 + p_jobs - 1) / p_jobs
$$;

-- How far the jobs of a rate may run ahead of the time, in microseconds: so many may be taken at once.
CREATE OR REPLACE FUNCTION dialoq.rate_burst(p_jobs bigint, p_rate_ms bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT (p_jobs - 1) * dialoq.rate_gap(p_jobs, p_rate_ms)
$$;

-- Counts taken jobs against a rate. tick wakes readers when the rate lets another job go, and forgets it when it holds
-- nothing back. The caller holds lock_limits, and takes no more than the rate lets go.
-- Gives: when readers are woken, NULL if the rate lets a further job go now
CREATE OR REPLACE FUNCTION dialoq.count_rate(
    p_queue_id integer, p_is_of_key boolean, p_job_key text, p_jobs bigint, p_rate_ms bigint, p_now timestamptz, p_taken bigint)
RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    v_gap interval := dialoq.rate_gap(p_jobs, p_rate_ms) * interval '1 microsecond';
    v_burst interval := dialoq.rate_burst(p_jobs, p_rate_ms) * interval '1 microsecond';
    v_next timestamptz;
BEGIN
    SELECT r.next_take INTO v_next
    FROM dialoq.work_rate AS r WHERE r.queue_id = p_queue_id AND r.is_of_key = p_is_of_key AND r.job_key = p_job_key;
    -- A later one was counted before the clock was set back.
    v_next := v_gap * p_taken + CASE WHEN v_next > p_now + v_burst + v_gap THEN p_now + v_burst ELSE greatest(v_next, p_now) END;
    INSERT INTO dialoq.work_rate AS r (queue_id, is_of_key, job_key, next_take, wake_at)
    VALUES (p_queue_id, p_is_of_key, p_job_key, v_next, CASE WHEN v_next > p_now + v_burst THEN v_next - v_burst ELSE v_next END)
    ON CONFLICT (queue_id, is_of_key, job_key) DO UPDATE SET next_take = excluded.next_take, wake_at = excluded.wake_at;
    RETURN CASE WHEN v_next > p_now + v_burst THEN v_next - v_burst END;
END $$;

-- How many jobs a rate lets go now.
-- Takes: when the next job would be taken (NULL: none was counted), the rate, the time
CREATE OR REPLACE FUNCTION dialoq.room_of_rate(p_next timestamptz, p_jobs bigint, p_rate_ms bigint, p_now timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        -- A time more than a gap beyond the burst was counted before the clock was set back.
        WHEN r.ahead < -r.gap THEN 1
        WHEN r.ahead < 0 THEN 0
        ELSE r.ahead / r.gap + 1 END
    FROM (
        SELECT dialoq.rate_gap(p_jobs, p_rate_ms) AS gap,
            dialoq.rate_burst(p_jobs, p_rate_ms)
                - CASE WHEN p_next > p_now THEN (extract(epoch FROM p_next - p_now) * 1000000)::bigint ELSE 0 END AS ahead
    ) AS r
$$;

-- How many more jobs the limits of the queue itself let go now; NULL if there is no such limit. The caller holds lock_limits.
CREATE OR REPLACE FUNCTION dialoq.room_of_queue(q dialoq.work_queue, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_room bigint;
    v_next timestamptz;
BEGIN
    IF q.max_taken > 0 THEN
        v_room := q.max_taken - (
            SELECT count(*) FROM (
                SELECT FROM dialoq.job AS j WHERE j.queue_id = q.queue_id AND j.state = 2 LIMIT q.max_taken) AS t);
    END IF;
    IF q.rate_jobs > 0 THEN
        SELECT r.next_take INTO v_next
        FROM dialoq.work_rate AS r WHERE r.queue_id = q.queue_id AND NOT r.is_of_key AND r.job_key = '';
        v_room := least(v_room, dialoq.room_of_rate(v_next, q.rate_jobs, q.rate_ms, p_now));
    END IF;
    RETURN v_room;
END $$;

-- The keys of which no job may be taken now. The caller holds lock_limits.
-- Takes: the queue, the time
-- Gives: the keys; whether jobs without a key are held back
CREATE OR REPLACE FUNCTION dialoq.blocked_keys(
    q dialoq.work_queue, p_now timestamptz, OUT blocked text[], OUT is_keyless_blocked boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_most bigint := CASE WHEN q.max_taken_per_key > 0 THEN q.max_taken_per_key WHEN q.work_order = 'FIFO_STRICT' THEN 1 END;
BEGIN
    blocked := '{}';
    is_keyless_blocked := false;
    IF v_most IS NOT NULL THEN
        SELECT coalesce(array_agg(h.job_key) FILTER (WHERE h.job_key IS NOT NULL), '{}'),
            coalesce(bool_or(h.job_key IS NULL AND q.work_order = 'FIFO_STRICT'), false)
        INTO blocked, is_keyless_blocked
        FROM (
            SELECT t.job_key
            FROM (
                SELECT j.job_key FROM dialoq.job AS j WHERE j.queue_id = q.queue_id AND j.state = 2
                UNION ALL
                SELECT j.job_key FROM dialoq.job AS j
                WHERE q.work_order = 'FIFO_STRICT' AND j.queue_id = q.queue_id AND j.state = 0 AND j.attempts > 0) AS t
            GROUP BY t.job_key
            HAVING count(*) >= CASE WHEN t.job_key IS NULL THEN 1 ELSE v_most END) AS h;
    END IF;
    IF q.key_rate_jobs > 0 THEN
        blocked := blocked || ARRAY(
            SELECT r.job_key FROM dialoq.work_rate AS r
            WHERE r.queue_id = q.queue_id AND r.is_of_key
                AND r.next_take > p_now + dialoq.rate_burst(q.key_rate_jobs, q.rate_ms) * interval '1 microsecond'
                AND r.next_take <= p_now + interval '1 microsecond'
                    * (dialoq.rate_burst(q.key_rate_jobs, q.rate_ms) + dialoq.rate_gap(q.key_rate_jobs, q.rate_ms)));
    END IF;
END $$;

-- How many more jobs of a key may be taken now; NULL if there is no limit. The caller holds lock_limits.
-- Takes: the queue; the key (NULL: jobs without one); the time
CREATE OR REPLACE FUNCTION dialoq.room_of_key(q dialoq.work_queue, p_job_key text, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_room bigint := CASE
        WHEN p_job_key IS NOT NULL AND q.max_taken_per_key > 0 THEN q.max_taken_per_key
        WHEN q.work_order = 'FIFO_STRICT' THEN 1 END;
    v_next timestamptz;
BEGIN
    IF v_room IS NOT NULL AND p_job_key IS NULL THEN
        IF EXISTS (SELECT FROM dialoq.job AS j WHERE j.queue_id = q.queue_id AND j.job_key IS NULL AND j.state = 2)
            OR EXISTS (
                SELECT FROM dialoq.job AS j
                WHERE j.queue_id = q.queue_id AND j.job_key IS NULL AND j.state = 0 AND j.attempts > 0)
        THEN
            v_room := 0;
        END IF;
    ELSIF v_room IS NOT NULL THEN
        v_room := v_room - (
            SELECT count(*) FROM (
                SELECT FROM dialoq.job AS j
                WHERE j.queue_id = q.queue_id AND j.job_key = p_job_key AND j.state = 2 LIMIT v_room) AS t);
        IF v_room > 0 AND q.work_order = 'FIFO_STRICT' THEN
            v_room := v_room - (
                SELECT count(*) FROM (
                    SELECT FROM dialoq.job AS j
                    WHERE j.queue_id = q.queue_id AND j.job_key = p_job_key AND j.state = 0 AND j.attempts > 0 LIMIT v_room) AS t);
        END IF;
    END IF;
    IF q.key_rate_jobs > 0 AND p_job_key IS NOT NULL THEN
        SELECT r.next_take INTO v_next
        FROM dialoq.work_rate AS r WHERE r.queue_id = q.queue_id AND r.is_of_key AND r.job_key = p_job_key;
        v_room := least(v_room, dialoq.room_of_rate(v_next, q.key_rate_jobs, q.rate_ms, p_now));
    END IF;
    RETURN v_room;
END $$;

-- Whether the limits of a queue let a job be taken now. Without a lock, so that it is only a hint.
CREATE OR REPLACE FUNCTION dialoq.has_job_to_take(q dialoq.work_queue, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_blocked record;
BEGIN
    IF NOT q.is_enabled OR dialoq.room_of_queue(q, p_now) <= 0 THEN
        RETURN false;
    END IF;
    SELECT * INTO v_blocked FROM dialoq.blocked_keys(q, p_now);
    IF q.work_order = 'FIFO_STRICT' THEN
        -- As a take. Of 300,000 jobs of one key that is taken, each poll read all for 80 ms.
        RETURN (
            SELECT n.job_id IS NOT NULL
            FROM dialoq.next_strict_job(q, NULL, v_blocked.blocked, v_blocked.is_keyless_blocked, 0, '{}', '{}', '{}', p_now) AS n);
    END IF;
    RETURN (
        SELECT n.job_id IS NOT NULL
        FROM dialoq.next_job(q, NULL, 0, 9, false, v_blocked.blocked, v_blocked.is_keyless_blocked, -1, 0) AS n);
END $$;
