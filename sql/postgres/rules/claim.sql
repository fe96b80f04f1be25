-- Claims: messages that a transaction has been shown and has not taken yet. The claiming session holds the lock of the group in
-- shared mode: no other session can lock the group, and the session of the transaction can take the lock over without a gap.
-- Takes, Gives, Errors, Locks: see each function
-- Called by: dialoq_user (hold_group)

-- The key of the advisory lock on which sessions wait for a claim of a group to end.
CREATE OR REPLACE FUNCTION dialoq.claim_key(p_group uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (uuid_hash_extended(p_group, 0) & 281474976710655) | (17514::bigint << 48)
$$;

-- Claims a group that this transaction holds the lock of, for its session.
-- Gives: whether it is claimed; not if another session waits for the group
CREATE OR REPLACE FUNCTION dialoq.claim_group(p_group uuid) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_lock(dialoq.claim_key(p_group)) THEN
        RETURN false;
    ELSIF NOT pg_try_advisory_lock_shared(dialoq.group_key(p_group)) THEN
        PERFORM pg_advisory_unlock(dialoq.claim_key(p_group));
        RETURN false;
    END IF;
    RETURN true;
END $$;

-- Waits for the lock of a group that this transaction shares with a claim that was released, until it has the lock alone. A session
-- that shares a lock gets it before those that wait, so it does not wait on the lock of claims as wait_for_group does. Every role
-- of the server may share an advisory lock too, so the holders are checked as in lock_group.
-- Gives: true
-- Errors: 60010 if the lock is held by a session whose role may not use the broker
-- Locks: the group, waiting
CREATE OR REPLACE FUNCTION dialoq.hold_group(p_group uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_key bigint := dialoq.group_key(p_group);
    v_timeout text := current_setting('lock_timeout');
BEGIN
    LOOP
        BEGIN
            PERFORM set_config('lock_timeout', CASE v_timeout WHEN '0' THEN dialoq.holder_check_interval() ELSE v_timeout END, true);
            PERFORM pg_advisory_xact_lock(v_key);
            PERFORM set_config('lock_timeout', v_timeout, true);
            RETURN true;
        EXCEPTION WHEN lock_not_available THEN
            IF v_timeout <> '0' THEN
                RAISE;
            ELSIF dialoq.is_held_by_stranger(v_key) THEN
                PERFORM dialoq.fail(60010, format('the lock of conversation group %s is held by %s, whose role may not use the '
                    'broker; the transaction was rolled back, end that session or ROLLBACK PREPARED that transaction',
                    p_group, dialoq.lock_holders(v_key)));
            END IF;
        END;
    END LOOP;
END $$;

-- Takes claimed messages out of their queues, and corrects the rows of their groups in ready_group. The caller holds the locks
-- of the groups. One statement for all, because the start of each costs more than its work.
-- Takes: for each claim its group, its conversation's endpoint, the queuing_order of its first and its last message, how many
-- Gives: notices
-- Errors: 1205 if a message is gone
CREATE OR REPLACE FUNCTION dialoq.take_claimed(
    p_groups uuid[], p_endpoints bigint[], p_firsts bigint[], p_lasts bigint[], p_counts integer[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_held tid[];
    v_odd uuid[];
    v_group uuid;
    v_is_whole boolean;
    v_has_rollbacks boolean;
    v_notices text;
    v_xid xid8 := pg_current_xact_id();
    g record;
    v_read bigint := pg_stat_get_xact_tuples_returned('dialoq.ready_group_group'::regclass);
BEGIN
    SELECT n.floor, n.latest INTO g FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1;
    -- A statement of its own, so that the next one sees the message of every sender that relied on one of these rows.
    SELECT array_agg(r.row) INTO v_held
    FROM unnest(p_groups) AS u (id)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS row FROM dialoq.ready_group AS r
        WHERE r.conversation_group_id <= u.id AND (r.conversation_group_id, r.generation) >= (u.id, g.floor)
        FOR UPDATE SKIP LOCKED
    ) AS r;
    WITH claim AS MATERIALIZED (
        SELECT c.group_id, c.endpoint_id, c.first, c.last, e.rank_from_top, e.queue_id,
            (SELECT f.message_type_id FROM dialoq.first_system(c.endpoint_id) AS f) IS NOT NULL AS is_odd,
            (SELECT n.queuing_order FROM dialoq.queue_message AS n
                WHERE n.endpoint_id = c.endpoint_id AND n.delivery_class = 0 AND n.queuing_order > c.last
                ORDER BY n.queuing_order LIMIT 1) AS next
        FROM unnest(p_groups, p_endpoints, p_firsts, p_lasts) AS c (group_id, endpoint_id, first, last)
        CROSS JOIN LATERAL (
            SELECT (SELECT s.queue_id FROM dialoq.service AS s WHERE s.service_id = e.service_id) AS queue_id,
                (10 - e.priority)::smallint AS rank_from_top
            FROM dialoq.conversation_endpoint AS e
            WHERE e.endpoint_id = c.endpoint_id AND e.conversation_group_id = c.group_id
            OFFSET 0
        ) AS e
    ), gone AS (
        -- By place: a plan of a join may read all messages of a conversation, also those that are dead.
        DELETE FROM dialoq.queue_message AS m
        USING (
            SELECT n.row
            FROM claim AS c
            CROSS JOIN LATERAL (
                SELECT n.ctid AS row FROM dialoq.queue_message AS n
                WHERE n.endpoint_id = c.endpoint_id AND n.delivery_class = 0 AND n.queuing_order BETWEEN c.first AND c.last
                OFFSET 0
            ) AS n
        ) AS o
        WHERE m.ctid = o.row
        RETURNING 1
    ), unready AS (
        DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (v_held)
    ), ready AS (
        INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
        SELECT c.queue_id, c.rank_from_top, c.next, c.group_id, g.latest FROM claim AS c WHERE c.next IS NOT NULL
    )
    SELECT (SELECT count(*) FROM gone) = (SELECT sum(n.messages) FROM unnest(p_counts) AS n (messages)),
        EXISTS (SELECT FROM dialoq.queue_rollback AS r), array_agg(c.group_id) FILTER (WHERE c.is_odd),
        string_agg(DISTINCT 'q:' || c.queue_id::text, ' ') FILTER (WHERE c.is_odd OR c.next IS NOT NULL)
    INTO v_is_whole, v_has_rollbacks, v_odd, v_notices
    FROM claim AS c;
    IF v_is_whole IS NOT TRUE THEN
        PERFORM dialoq.fail(1205, 'a message that this transaction received is gone: the session that held the lock of its '
            'conversation group was lost; the transaction was rolled back, run it again');
    END IF;
    -- A message of the system came meanwhile.
    IF v_odd IS NOT NULL THEN
        FOREACH v_group IN ARRAY v_odd LOOP
            PERFORM dialoq.rebuild_ready_rows(v_group);
        END LOOP;
    END IF;
    IF v_has_rollbacks THEN
        PERFORM dialoq.forget_rollbacks(q.queue_id)
        FROM (
            SELECT DISTINCT s.queue_id
            FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE e.endpoint_id = ANY (p_endpoints)
        ) AS q;
    END IF;
    IF pg_stat_get_xact_tuples_returned('dialoq.ready_group_group'::regclass) - v_read > 200 + 20 * cardinality(p_groups) THEN
        v_notices := concat_ws(' ', v_notices, dialoq.dead_rows_notice());
    END IF;
    RETURN v_notices;
END $$;
