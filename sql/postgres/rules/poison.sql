-- Poison messages: transactions that received and did not commit. Five rollbacks in a row disable the queue, or put the guilty
-- group into quarantine. A queue with a retry policy pauses between the attempts at a group. Of transactions that are lost together, as
-- by the end of their process, a queue counts one (decision 0059).
-- Takes, Gives, Errors, Locks: see each function

-- Rollbacks in a row that make a message poison.
CREATE OR REPLACE FUNCTION dialoq.poison_rollbacks() RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT 5 $$;

-- The transaction that is receiving from a group now: it has deleted the first message of one of its conversations and has
-- not ended. The number is that of a subtransaction if the RECEIVE came after a savepoint.
-- Takes: the queue, the group
-- Gives: its number, and the message; NULL if there is none, or the group is not of that queue
CREATE OR REPLACE FUNCTION dialoq.receiver_of(p_queue_id integer, p_group uuid, OUT receiver xid8, OUT first_order bigint)
LANGUAGE plpgsql AS $$
DECLARE
    -- The system column has the last 32 bits of a number that is below this transaction's.
    v_now bigint := pg_current_xact_id()::text::bigint;
    v_low bigint;
    v_xid bigint;
    v_order bigint;
BEGIN
    FOR v_low, v_order IN
        SELECT m.xid, m.queuing_order
        FROM dialoq.conversation_endpoint AS e
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        CROSS JOIN generate_series(0, 2) AS k (delivery_class)
        CROSS JOIN LATERAL (
            SELECT n.xmax::text::bigint AS xid, n.queuing_order FROM dialoq.queue_message AS n
            WHERE n.endpoint_id = e.endpoint_id AND n.delivery_class = k.delivery_class AND n.queuing_order >= CASE WHEN e.moved_recheck_id IS NULL THEN (
                -- As in group_rank.
                SELECT min(r.oldest) FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= p_group AND (r.conversation_group_id, r.generation) >= (p_group, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)))
                ELSE 0 END
            ORDER BY n.queuing_order LIMIT 1
        ) AS m
        WHERE e.conversation_group_id = p_group AND s.queue_id = p_queue_id AND m.xid <> 0
        -- As RECEIVE gives them.
        ORDER BY e.priority DESC, e.conversation_handle, k.delivery_class DESC
    LOOP
        v_xid := (v_now & ~4294967295::bigint) | v_low;
        IF v_xid > v_now THEN
            v_xid := v_xid - 4294967296;
        END IF;
        IF v_xid > 0 AND pg_xact_status(v_xid::text::xid8) = 'in progress' THEN
            receiver := v_xid::text::xid8;
            first_order := v_order;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Whether a message still waits in a group. The statement that locks the group asks it, so it reads anew: its message may have been handled
-- just before the lock was free.
CREATE OR REPLACE FUNCTION dialoq.waits_in_group(p_group uuid, p_queuing_order bigint) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT FROM dialoq.conversation_endpoint AS e
        CROSS JOIN generate_series(0, 2) AS k (delivery_class)
        JOIN dialoq.queue_message AS m
            ON m.endpoint_id = e.endpoint_id AND m.delivery_class = k.delivery_class AND m.queuing_order = p_queuing_order
        WHERE e.conversation_group_id = p_group)
$$;

-- The outcome of a transaction that received.
-- Takes: its number, as receiver_of gave it
-- Gives: 'in progress', 'committed', 'aborted'; NULL if this server never gave out that number, as in a restored copy
CREATE OR REPLACE FUNCTION dialoq.receiver_status(p_receiver xid8) RETURNS text
LANGUAGE sql AS $$
    SELECT CASE WHEN p_receiver < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status(p_receiver) END
$$;

-- Counts one rollback for each queue that a transaction received from, and deletes its attempts. The first session that
-- counts it locks its rows; others skip them. A transaction that has committed ends the row of rollbacks before it, as
-- commit_attempt does: another session may have noted it first, under an id of its own. A transaction that is still open is
-- left for later.
-- So is a group that is held: its holder may be the same transaction, which went back to a savepoint before its
-- RECEIVE (then the number of its subtransaction is that of an aborted one), and a count under the lock of another holder
-- would be lost. An attempt at a message that is gone no longer counts: it is counted late, and another transaction has handled the
-- message since, or others at the message were the last. Counted against the message that is first now, it would be the end of
-- one that no reader has seen.
-- Takes: the attempt id; why it was rolled back; if the transaction was lost without its reader's doing, the latest time at which it had
--     received
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.count_attempt(
    p_attempt_id uuid, p_reason text DEFAULT NULL, p_lost_since timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
    v_notices text;
BEGIN
    FOR v_row IN
        WITH gone AS (
            DELETE FROM dialoq.receive_attempt AS a
            WHERE a.ctid = ANY (ARRAY(
                SELECT o.ctid
                FROM dialoq.receive_attempt AS o
                WHERE o.attempt_id = p_attempt_id
                    AND CASE WHEN dialoq.receiver_status(o.receiver_xid) IS DISTINCT FROM 'in progress'
                        THEN dialoq.try_lock_group(o.conversation_group_id) ELSE false END
                FOR UPDATE SKIP LOCKED))
            RETURNING a.queue_id, a.conversation_group_id, a.began_at, a.is_rolled_back, a.first_order,
                dialoq.receiver_status(a.receiver_xid) AS status
        )
        SELECT g.queue_id, g.status, array_agg(g.conversation_group_id) AS groups, array_agg(g.first_order) AS firsts,
            CASE WHEN p_lost_since IS NOT NULL AND NOT bool_or(g.is_rolled_back) THEN least(min(g.began_at), p_lost_since) END AS lost_since
        FROM gone AS g
        WHERE g.status = 'committed'
            OR g.status = 'aborted' AND (g.first_order IS NULL OR dialoq.waits_in_group(g.conversation_group_id, g.first_order))
        GROUP BY g.queue_id, g.status ORDER BY g.queue_id, g.status DESC
    LOOP
        IF v_row.status = 'aborted' THEN
            v_notices := concat_ws(' ', v_notices, dialoq.count_against(
                v_row.queue_id, v_row.groups, p_reason, v_row.lost_since, v_row.firsts));
            -- The rollback has counted for the queue: a group of it that is held now would count once more later.
            IF EXISTS (
                SELECT FROM dialoq.service_queue AS q
                WHERE q.queue_id = v_row.queue_id AND q.retry_max_attempts IS NULL AND NOT q.is_poison_quarantine_enabled)
            THEN
                DELETE FROM dialoq.receive_attempt AS a
                WHERE a.ctid = ANY (ARRAY(
                    SELECT o.ctid
                    FROM dialoq.receive_attempt AS o
                    WHERE o.attempt_id = p_attempt_id AND o.queue_id = v_row.queue_id AND dialoq.receiver_status(o.receiver_xid) = 'aborted'
                    FOR UPDATE SKIP LOCKED));
            END IF;
        ELSE
            PERFORM dialoq.forget_rollbacks(v_row.queue_id);
            UPDATE dialoq.conversation_endpoint AS e SET rollbacks = 0
            WHERE e.conversation_group_id = ANY (v_row.groups) AND e.rollbacks <> 0;
        END IF;
    END LOOP;
    -- What is left for tick is no loss.
    IF p_lost_since IS NULL THEN
        UPDATE dialoq.receive_attempt AS a SET is_rolled_back = true
        WHERE a.ctid = ANY (ARRAY(
            SELECT o.ctid FROM dialoq.receive_attempt AS o WHERE o.attempt_id = p_attempt_id AND NOT o.is_rolled_back FOR UPDATE SKIP LOCKED));
    END IF;
    RETURN v_notices;
END $$;

-- Whether a group still gives its messages to a queue: its service may have another one since. A volatile function, so that it reads
-- what is there under the group's lock.
CREATE OR REPLACE FUNCTION dialoq.is_group_of(p_group uuid, p_queue_id integer) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.conversation_group_id = p_group AND s.queue_id = p_queue_id)
$$;

-- How many attempts at a message a count stands for: its own, and the others that have failed and are not counted yet. Their counts met a
-- group that was held, and would meet it again: under readers that take the group at once a message was received over forty times, of
-- three that its policy allows. Deletes those others. The caller holds the group's lock. The message is NULL if it is not known.
CREATE OR REPLACE FUNCTION dialoq.attempts_at(p_queue_id integer, p_group uuid, p_message bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_others integer;
BEGIN
    DELETE FROM dialoq.receive_attempt AS a
    WHERE a.ctid = ANY (ARRAY(
        SELECT o.ctid
        FROM dialoq.receive_attempt AS o
        WHERE o.conversation_group_id = p_group AND o.queue_id = p_queue_id AND o.first_order = p_message
            AND dialoq.receiver_status(o.receiver_xid) = 'aborted'
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_others = ROW_COUNT;
    RETURN 1 + v_others;
END $$;

-- Deletes what is still to be counted of a group: it starts again with all its attempts. What an open transaction has received goes on. The
-- caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.forget_attempts(p_group uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM dialoq.receive_attempt AS a
    WHERE a.ctid = ANY (ARRAY(
        SELECT o.ctid FROM dialoq.receive_attempt AS o
        WHERE o.conversation_group_id = p_group AND dialoq.receiver_status(o.receiver_xid) IS DISTINCT FROM 'in progress'
        FOR UPDATE SKIP LOCKED));
END $$;

-- Counts a rollback that gave back messages of these groups of a queue. Five in a row disable the queue, or put the
-- guilty group into quarantine. For a policy or a quarantine, groups that another transaction holds are passed over, and those that
-- the queue has no longer.
-- Takes: the queue, the groups; why it was rolled back; when a transaction that was lost had received (NULL: its reader rolled it back);
--     the message of each group, if it is known
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.count_against(
    p_queue_id integer, p_groups uuid[], p_reason text DEFAULT NULL, p_lost_since timestamptz DEFAULT NULL, p_firsts bigint[] DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_queue record;
    v_group uuid;
    v_first bigint;
    v_new integer;
    v_rollbacks integer;
    v_notices text := 'q:' || p_queue_id::text;
BEGIN
    SELECT q.is_poison_message_handling_enabled AS is_handled, q.is_poison_quarantine_enabled AS is_quarantine,
        q.retry_max_attempts IS NOT NULL AS is_retried INTO v_queue
    FROM dialoq.service_queue AS q WHERE q.queue_id = p_queue_id;
    IF v_queue.is_handled IS NOT TRUE THEN
        RETURN v_notices;
    END IF;
    IF v_queue.is_retried THEN
        FOR v_group, v_first IN SELECT * FROM unnest(p_groups, p_firsts) LOOP
            CONTINUE WHEN NOT dialoq.try_lock_group(v_group) OR NOT dialoq.is_group_of(v_group, p_queue_id);
            v_notices := concat_ws(' ', v_notices, dialoq.retry_group(p_queue_id, v_group, p_reason, v_first));
        END LOOP;
        RETURN v_notices;
    END IF;
    IF v_queue.is_quarantine THEN
        FOR v_group, v_first IN SELECT * FROM unnest(p_groups, p_firsts) LOOP
            CONTINUE WHEN NOT dialoq.try_lock_group(v_group) OR NOT dialoq.is_group_of(v_group, p_queue_id);
            v_new := dialoq.attempts_at(p_queue_id, v_group, v_first);
            UPDATE dialoq.conversation_endpoint AS e SET rollbacks = e.rollbacks + v_new WHERE e.conversation_group_id = v_group;
            SELECT max(e.rollbacks) INTO v_rollbacks
            FROM dialoq.conversation_endpoint AS e WHERE e.conversation_group_id = v_group;
            IF v_rollbacks >= dialoq.poison_rollbacks() THEN
                PERFORM dialoq.set_quarantined(v_group, true);
            END IF;
        END LOOP;
        RETURN v_notices;
    END IF;
    -- Two sessions that count at once do not see each other's row: after the fifth rollback the queue would stay on.
    PERFORM dialoq.line_up(p_queue_id);
    -- It was open when others were lost, which have counted: the end of a process with five readers is one attempt, not five. Those that
    -- held one group were not open together, but one was found late.
    UPDATE dialoq.queue_rollback AS r SET lost_groups = r.lost_groups || p_groups
    WHERE r.ctid = (
        SELECT o.ctid FROM dialoq.queue_rollback AS o
        WHERE o.queue_id = p_queue_id AND o.counted_at > p_lost_since AND NOT o.lost_groups && p_groups
        ORDER BY o.counted_at LIMIT 1 FOR UPDATE SKIP LOCKED);
    IF FOUND THEN
        RETURN v_notices;
    END IF;
    INSERT INTO dialoq.queue_rollback (queue_id, counted_at, lost_groups)
    VALUES (p_queue_id, clock_timestamp(), CASE WHEN p_lost_since IS NOT NULL THEN p_groups END);
    IF (SELECT count(*) FROM dialoq.queue_rollback AS r WHERE r.queue_id = p_queue_id) >= dialoq.poison_rollbacks() THEN
        v_notices := concat_ws(' ', v_notices, nullif(dialoq.disable_queue(p_queue_id), ''));
    END IF;
    RETURN v_notices;
END $$;

-- Counts a rollback against a group of a queue with a retry policy: the group pauses, or the policy gives up. The caller
-- holds the group's lock. The message is NULL if it is not known.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.retry_group(p_queue_id integer, p_group uuid, p_reason text, p_message bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    q dialoq.service_queue;
    v_attempts integer;
    v_oldest bigint;
    v_first bigint;
    v_pause_us bigint;
    v_new integer := dialoq.attempts_at(p_queue_id, p_group, p_message);
    v_notices text;
    v_now timestamptz := dialoq.current_time_utc();
BEGIN
    SELECT * INTO q FROM dialoq.service_queue AS o WHERE o.queue_id = p_queue_id;
    UPDATE dialoq.conversation_endpoint AS e SET rollbacks = e.rollbacks + v_new WHERE e.conversation_group_id = p_group;
    SELECT max(e.rollbacks), min(e.endpoint_id) INTO v_attempts, v_oldest
    FROM dialoq.conversation_endpoint AS e WHERE e.conversation_group_id = p_group;
    IF v_attempts IS NULL THEN
        RETURN NULL;
    END IF;
    IF v_attempts < q.retry_max_attempts THEN
        v_pause_us := dialoq.retry_delay_us(q.retry_delay_ms, q.retry_factor_percent, q.retry_max_delay_ms,
            q.retry_jitter_percent, v_oldest, v_attempts);
        IF v_pause_us > 0 THEN
            v_notices := dialoq.pause_group(p_group, v_now + v_pause_us * interval '1 microsecond');
        END IF;
        RETURN v_notices;
    END IF;
    IF q.retry_then = 'QUEUE_OFF' THEN
        v_notices := dialoq.disable_queue(p_queue_id);
        -- Else the next rollback disables it.
        IF v_notices IS NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE dialoq.conversation_endpoint AS e SET rollbacks = 0 WHERE e.conversation_group_id = p_group AND e.rollbacks <> 0;
    IF q.retry_then = 'QUEUE_OFF' THEN
        RETURN nullif(v_notices, '');
    ELSIF q.retry_then IN ('END_WITH_ERROR', 'DEAD_LETTER') THEN
        -- The conversation of the message that was received first. A timer, an Error or one of a higher level may have come meanwhile, which no
        -- reader has seen.
        SELECT e.endpoint_id INTO v_first
        FROM dialoq.conversation_endpoint AS e
        WHERE e.conversation_group_id = p_group AND (NOT e.is_quarantined OR e.retry_at IS NOT NULL) AND e.state NOT IN ('DO', 'CD')
            AND EXISTS (
                SELECT FROM generate_series(0, 2) AS k (delivery_class)
                JOIN dialoq.queue_message AS m
                    ON m.endpoint_id = e.endpoint_id AND m.delivery_class = k.delivery_class AND m.queuing_order = p_message);
        -- If several attempts are counted late, it pauses after the one before.
        UPDATE dialoq.conversation_endpoint AS e SET is_quarantined = false, retry_at = NULL
        WHERE e.endpoint_id = v_first AND e.retry_at IS NOT NULL;
        -- If it is not known, that of the message that RECEIVE would give first.
        IF v_first IS NULL THEN
            SELECT e.endpoint_id INTO v_first
            FROM dialoq.conversation_endpoint AS e
            WHERE e.conversation_group_id = p_group AND NOT e.is_quarantined AND e.state NOT IN ('DO', 'CD')
                AND EXISTS (SELECT FROM dialoq.queue_message AS m WHERE m.endpoint_id = e.endpoint_id)
            ORDER BY e.priority DESC, e.conversation_handle LIMIT 1;
        END IF;
        IF v_first IS NULL THEN
            RETURN NULL;
        ELSIF q.retry_then = 'DEAD_LETTER' THEN
            v_notices := dialoq.apply_pending(v_first);
            PERFORM dialoq.bury(v_first, p_message, v_attempts, p_reason, v_now);
            RETURN v_notices;
        END IF;
        RETURN concat_ws(' ', dialoq.apply_pending(v_first), dialoq.end_endpoint(v_first, 60047, format('the message was '
                'received %s times from queue ''%s'', and each time its transaction rolled back', v_attempts, q.name), false,
                v_now));
    END IF;
    PERFORM dialoq.set_quarantined(p_group, true);
    RETURN NULL;
END $$;

-- Turns a queue off and posts the event, unless a lock for that is held: counting must not wait.
-- Gives: notices; NULL if a lock is held, and empty if the queue is off already
CREATE OR REPLACE FUNCTION dialoq.disable_queue(p_queue_id integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_group uuid;
BEGIN
    -- If another session is changing definitions, the next rollback disables the queue instead: counting must not wait
    -- for a definition that its session never ends.
    IF NOT dialoq.try_lock_definitions() THEN
        RETURN NULL;
    END IF;
    -- The same if another session holds the group of a notification of that event. The groups are found before any is
    -- locked: in one statement the planner may lock the groups of all conversations.
    FOR v_group IN
        SELECT e.conversation_group_id
        FROM dialoq.event_notification AS n
        JOIN dialoq.conversation_endpoint AS e ON e.conversation_handle = n.conversation_handle
        WHERE n.queue_id = p_queue_id AND n.event = 'BROKER_QUEUE_DISABLED'
        ORDER BY n.event_notification_id
    LOOP
        IF NOT dialoq.try_lock_group(v_group) THEN
            RETURN NULL;
        END IF;
    END LOOP;
    PERFORM dialoq.forget_rollbacks(p_queue_id);
    UPDATE dialoq.service_queue AS q SET is_receive_enabled = false, is_enqueue_enabled = false,
        off_since = dialoq.current_time_utc(), off_by = 'poison', off_reason = NULL
    WHERE q.queue_id = p_queue_id AND q.is_receive_enabled;
    IF NOT FOUND THEN
        RETURN '';
    END IF;
    -- As in define_end.
    UPDATE dialoq.broker
    SET catalog_version = greatest(catalog_version + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    RETURN concat_ws(' ', 'c', dialoq.post_event(p_queue_id, 'BROKER_QUEUE_DISABLED'));
END $$;

-- Forgets the rollbacks of a queue, but those that another transaction is about to forget.
CREATE OR REPLACE FUNCTION dialoq.forget_rollbacks(p_queue_id integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM dialoq.queue_rollback AS r WHERE r.queue_id = p_queue_id) THEN
        DELETE FROM dialoq.queue_rollback AS r
        WHERE r.ctid = ANY (ARRAY(
            SELECT o.ctid FROM dialoq.queue_rollback AS o WHERE o.queue_id = p_queue_id FOR UPDATE SKIP LOCKED));
    END IF;
END $$;

-- Locks the definitions as define_begin does, before any queue's row.
-- Gives: whether the lock was free within 250 ms
CREATE OR REPLACE FUNCTION dialoq.try_lock_definitions() RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_timeout text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '250ms', true);
    PERFORM FROM dialoq.broker AS b FOR UPDATE;
    PERFORM set_config('lock_timeout', v_timeout, true);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- The other sessions that may hold the lock of definitions, for messages: those that have locked a row of its table and wait for none.
CREATE OR REPLACE FUNCTION dialoq.definition_holders() RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((
        SELECT string_agg(DISTINCT format('session %s (user ''%s'', application ''%s'')', a.pid, a.usename, left(a.application_name, 60)), ', ')
        FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid AND a.datid = l.database
        WHERE l.locktype = 'relation' AND l.relation = 'dialoq.broker'::regclass AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
            AND a.datname = current_database() AND l.pid <> pg_backend_pid()
            AND NOT EXISTS (SELECT FROM pg_locks AS w WHERE w.pid = l.pid AND NOT w.granted)), 'another transaction');
END $$;
