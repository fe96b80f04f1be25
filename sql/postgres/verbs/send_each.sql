-- Many messages, each with a conversation, type and body of its own: all of them are sent or none. Messages of one
-- conversation keep their order.
-- Takes: the columns of a table, a row for each message, of which all but the handles may be NULL: handles, message types (NULL
--     is DEFAULT), bodies (empty is none), trace contexts, faults as send takes them, ids for the messages (NULL: made here); the
--     version of the definitions the bodies were checked with (NULL: any). At most 10000 messages with 256 MiB of bodies.
-- Gives: notices
-- Errors: 1205, 8426, 8428, 8429, 8431, 8432, 8434, 9618, 60005, 60026, 60033; the text begins with the place of the message
-- Locks: the groups of the conversations in order of their keys, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.send_each(
    p_conversation_handles uuid[], p_message_type_names text[] DEFAULT NULL, p_message_bodies bytea[] DEFAULT NULL,
    p_traces text[] DEFAULT NULL, p_body_faults text[] DEFAULT NULL, p_message_ids uuid[] DEFAULT NULL,
    p_catalog_version bigint DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_memoize = off SET jit = off AS $$
DECLARE
    v_count integer := coalesce(cardinality(p_conversation_handles), 0);
    v_keeps_locks boolean := coalesce(current_setting('dialoq.session_locks', true) = '1', false);
    v_types text[] := coalesce(p_message_type_names, array_fill(NULL::text, ARRAY[v_count]));
    v_bodies bytea[] := coalesce(p_message_bodies, array_fill(NULL::bytea, ARRAY[v_count]));
    v_traces text[] := coalesce(p_traces, array_fill(NULL::text, ARRAY[v_count]));
    v_faults text[] := coalesce(p_body_faults, array_fill(NULL::text, ARRAY[v_count]));
    v_ids uuid[] := coalesce(p_message_ids, array_fill(NULL::uuid, ARRAY[v_count]));
    -- The conversation and the type, if the list has only one of each.
    v_handle uuid := p_conversation_handles[1];
    v_type text := v_types[1];
    v_group uuid;
    v_bytes bigint;
    v_is_checked boolean := false;
    v_now timestamptz;
    v_is_enabled boolean;
    v_floor bigint;
    v_asks_each boolean;
    v_latest bigint;
    -- How many endpoints the short way has counted on, of how many.
    v_counted bigint;
    v_conversations bigint;
    v_row record;
    v_notices text;
BEGIN
    IF v_count = 0 AND 0 = ALL (ARRAY[cardinality(v_types), cardinality(v_bodies), cardinality(v_traces),
        cardinality(v_faults), cardinality(v_ids)])
    THEN
        RETURN QUERY SELECT NULL::text;
        RETURN;
    ELSIF (dialoq.is_column(p_conversation_handles, v_count) AND dialoq.is_column(v_types, v_count)
        AND dialoq.is_column(v_bodies, v_count) AND dialoq.is_column(v_traces, v_count)
        AND dialoq.is_column(v_faults, v_count) AND dialoq.is_column(v_ids, v_count)) IS NOT TRUE
    THEN
        PERFORM dialoq.refuse_columns('send_each');
    ELSIF v_count > 10000 THEN
        PERFORM dialoq.fail(60005, format('the list of send_each is %s messages; it must be at most 10000 messages', v_count));
    END IF;
    IF pg_column_size(v_bodies) > 268435456 THEN
        SELECT sum(length(b.body)) INTO v_bytes FROM unnest(v_bodies) AS b (body);
        IF v_bytes > 268435456 THEN
            PERFORM dialoq.fail(60005, format(
                'the list of send_each is %s bytes of bodies; it must be at most 268435456 bytes', v_bytes));
        END IF;
    END IF;
    -- Only then can one of them be too long.
    IF pg_column_size(v_traces) > 65536 THEN
        PERFORM dialoq.check_message_bytes(NULL, max(octet_length(t.trace))) FROM unnest(v_traces) AS t (trace);
    END IF;
    PERFORM dialoq.check_isolation();
    -- Before any read: tick finds by the transaction's number whether its own reads are complete.
    PERFORM pg_current_xact_id();
    -- Most lists are of one conversation and one type. They take the two statements of a SEND, for half the time of the ones below.
    IF v_handle = ALL (p_conversation_handles) AND v_type = ALL (v_types) AND '' = ALL (v_faults) AND NOT v_keeps_locks THEN
        SELECT c.conversation_group_id, g.floor, g.latest INTO v_group, v_floor, v_latest
        FROM (SELECT n.floor, n.latest FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1) AS g
        CROSS JOIN dialoq.conversation_endpoint AS c WHERE c.conversation_handle = v_handle AND NOT c.is_system;
        -- A statement of its own after the lock: it sees what the holder before has committed.
        IF v_group IS NOT NULL AND pg_try_advisory_xact_lock(dialoq.group_key(v_group)) THEN
            WITH plain AS MATERIALIZED (
                SELECT p.*, nextval('dialoq.queue_message_queuing_order_seq') AS queuing_order
                FROM dialoq.plain_send(v_handle, v_group, v_type, true, p_catalog_version) AS p
            ), sent AS (
                -- The numbers are given in the order of the places: the function is the only list of this join.
                INSERT INTO dialoq.queue_message (
                    queuing_order, endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace)
                OVERRIDING SYSTEM VALUE
                SELECT CASE i.place WHEN 1 THEN p.queuing_order ELSE nextval('dialoq.queue_message_queuing_order_seq') END,
                    p.peer_id, 0, p.sequence + i.place - 1, p.message_type_id, coalesce(i.id, gen_random_uuid()), p.now,
                    CASE WHEN length(i.body) > 0 THEN i.body END, i.trace
                FROM plain AS p CROSS JOIN unnest(v_bodies, v_traces, v_ids) WITH ORDINALITY AS i (body, trace, id, place)
            ), counted AS (
                UPDATE dialoq.send_counter AS n SET send_sequence = p.sequence + v_count, bucket = (p.sequence + v_count) / 32
                FROM plain AS p WHERE n.ctid = p.counter
            ), ready AS (
                -- As add_ready.
                -- <ready_of_send>
            )
            SELECT 'q:' || p.queue_id::text INTO v_notices FROM plain AS p;
            IF v_notices IS NOT NULL THEN
                RETURN QUERY SELECT dialoq.publish_notices(v_notices);
                RETURN;
            END IF;
        END IF;
    END IF;
    IF v_keeps_locks THEN
        -- A lock is the session's, and would stay after a refusal.
        PERFORM dialoq.check_each(p_conversation_handles, v_types, v_bodies, v_faults);
        v_is_checked := true;
    END IF;
    -- One by one and in order, so that two calls cannot wait for each other.
    FOR v_row IN
        SELECT g.group_id, dialoq.group_key(g.group_id) AS key
        FROM (
            SELECT DISTINCT e.group_id
            FROM (SELECT DISTINCT u.handle FROM unnest(p_conversation_handles) AS u (handle)) AS h
            CROSS JOIN LATERAL (
                SELECT c.conversation_group_id AS group_id FROM dialoq.conversation_endpoint AS c
                WHERE c.conversation_handle = h.handle AND NOT c.is_system
                OFFSET 0
            ) AS e
        ) AS g
        ORDER BY 2
    LOOP
        IF pg_try_advisory_xact_lock(v_row.key) AND (NOT v_keeps_locks OR pg_try_advisory_lock(v_row.key)) THEN
            CONTINUE;
        END IF;
        IF NOT v_is_checked THEN
            -- A SEND that no holder of the groups can make valid does not wait for them.
            PERFORM dialoq.check_each(p_conversation_handles, v_types, v_bodies, v_faults);
            v_is_checked := true;
        END IF;
        PERFORM dialoq.lock_group(v_row.group_id);
    END LOOP;
    IF ('' = ALL (v_faults)) IS NOT TRUE OR (
        SELECT count(*) <> count(DISTINCT e.conversation_id)
        FROM (SELECT DISTINCT u.handle FROM unnest(p_conversation_handles) AS u (handle)) AS h
        CROSS JOIN LATERAL (
            SELECT c.conversation_id FROM dialoq.conversation_endpoint AS c WHERE c.conversation_handle = h.handle AND NOT c.is_system
            OFFSET 0
        ) AS e)
    THEN
        -- A body may break its conversation, and a message that of the other side, so the messages go one by one.
        PERFORM dialoq.check_each(p_conversation_handles, v_types, v_bodies, v_faults);
        RETURN QUERY SELECT dialoq.publish_notices(dialoq.send_in_order(
            p_conversation_handles, v_types, v_bodies, v_traces, v_faults, v_ids, p_catalog_version));
        RETURN;
    END IF;
    -- Most lists are of one service and one contract, to one queue, and no message of them has to wait. Such a list takes one
    -- statement, which reads each conversation once. It sends all messages or none. Its conditions are those of send_batch.
    SELECT coalesce(b.manual_now, clock_timestamp()), b.is_broker_enabled, g.floor, g.latest, g.asks_each
    INTO v_now, v_is_enabled, v_floor, v_latest, v_asks_each
    FROM dialoq.broker AS b
    CROSS JOIN (SELECT n.floor, n.latest, n.asks_each FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1) AS g;
    IF v_is_enabled THEN
        PERFORM dialoq.check_catalog_version(p_catalog_version);
        WITH conversation AS MATERIALIZED (
            SELECT h.handle, h.messages, e.*, s.*, p.*
            FROM (
                SELECT u.handle, count(*) AS messages FROM unnest(p_conversation_handles) AS u (handle) GROUP BY u.handle
            ) AS h
            CROSS JOIN LATERAL (
                SELECT c.endpoint_id AS own_id, c.conversation_id, c.is_initiator, c.service_id AS own_service_id, c.service_contract_id
                FROM dialoq.conversation_endpoint AS c
                WHERE c.conversation_handle = h.handle AND NOT c.is_system AND c.state = 'CO'
                    AND (c.due_at IS NULL OR c.due_at > v_now)
                    -- It may have been moved before its lock was taken.
                    AND pg_try_advisory_xact_lock(dialoq.group_key(c.conversation_group_id))
                    AND (NOT v_keeps_locks OR pg_try_advisory_lock(dialoq.group_key(c.conversation_group_id)))
                    -- <may_send>
                OFFSET 0
            ) AS e
            CROSS JOIN LATERAL dialoq.send_position(e.own_id) AS s
            CROSS JOIN LATERAL (
                SELECT c.endpoint_id AS peer_id, c.conversation_group_id AS group_id, c.service_id,
                    (10 - c.priority)::smallint AS rank_from_top
                FROM dialoq.conversation_endpoint AS c
                -- <peer>
                OFFSET 0
            ) AS p
        ), common AS MATERIALIZED (
            SELECT t.service_contract_id, t.are_initiators, t.conversations, q.queue_id
            FROM (
                SELECT sum(c.messages) AS plain, count(*) AS conversations,
                    min(c.own_service_id) AS own_service_id, max(c.own_service_id) AS other_own_service_id,
                    min(c.service_contract_id) AS service_contract_id, max(c.service_contract_id) AS other_contract_id,
                    bool_and(c.is_initiator) AS are_initiators, bool_or(c.is_initiator) AS is_an_initiator,
                    min(c.service_id) AS service_id, max(c.service_id) AS other_service_id
                FROM conversation AS c
            ) AS t
            -- <common_queue>
            WHERE t.plain = v_count AND t.own_service_id = t.other_own_service_id
                AND t.service_contract_id = t.other_contract_id AND t.are_initiators = t.is_an_initiator
                AND t.service_id = t.other_service_id
        ), type AS MATERIALIZED (
            SELECT n.name, y.message_type_id
            FROM common AS w
            CROSS JOIN (SELECT DISTINCT coalesce(u.name, 'DEFAULT') AS name FROM unnest(v_types) AS u (name)) AS n
            LEFT JOIN LATERAL (
                SELECT y.message_type_id
                FROM dialoq.message_type AS y
                JOIN dialoq.service_contract_message_usage AS u
                    ON u.service_contract_id = w.service_contract_id AND u.message_type = y.name
                WHERE y.name = n.name AND NOT y.is_dropped
                    AND CASE WHEN w.are_initiators THEN u.is_sent_by_initiator ELSE u.is_sent_by_target END
                OFFSET 0
            ) AS y ON true
        ), whole AS MATERIALIZED (
            SELECT w.queue_id, w.conversations FROM common AS w WHERE NOT EXISTS (SELECT FROM type AS t WHERE t.message_type_id IS NULL)
        ), item AS MATERIALIZED (
            -- The numbers are given in the order of the places.
            SELECT i.*, nextval('dialoq.queue_message_queuing_order_seq') AS queuing_order
            FROM (
                SELECT u.place, u.handle, c.peer_id, t.message_type_id,
                    c.sequence + row_number() OVER (PARTITION BY u.handle ORDER BY u.place) - 1 AS sequence
                FROM whole AS w
                CROSS JOIN unnest(p_conversation_handles, v_types) WITH ORDINALITY AS u (handle, type_name, place)
                JOIN conversation AS c ON c.handle = u.handle
                JOIN type AS t ON t.name = coalesce(u.type_name, 'DEFAULT')
                ORDER BY u.place
            ) AS i
        ), sent AS (
            INSERT INTO dialoq.queue_message (
                queuing_order, endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace)
            OVERRIDING SYSTEM VALUE
            SELECT i.queuing_order, i.peer_id, 0, i.sequence, i.message_type_id, coalesce(v_ids[i.place], gen_random_uuid()), v_now,
                CASE WHEN length(v_bodies[i.place]) > 0 THEN v_bodies[i.place] END, v_traces[i.place]
            FROM item AS i
        ), counted AS (
            UPDATE dialoq.send_counter AS n SET send_sequence = c.sequence + c.messages, bucket = (c.sequence + c.messages) / 32
            FROM whole AS w CROSS JOIN conversation AS c
            -- Twice, as in send_batch: one that was moved is locked only here.
            WHERE n.ctid = c.counter AND (n.ctid <> c.counter) IS NOT TRUE AND n.send_sequence + 0 = c.sequence
            RETURNING true
        ), ready AS (
            -- As add_ready, for all of them.
            INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
            SELECT w.queue_id, c.rank_from_top, least(i.oldest, (
                    SELECT min(r.oldest) FROM dialoq.ready_group AS r
                    WHERE r.conversation_group_id <= c.group_id AND (r.conversation_group_id, r.generation) >= (c.group_id, v_floor))),
                c.group_id, v_latest
            FROM whole AS w
            CROSS JOIN (SELECT i.handle, min(i.queuing_order) AS oldest FROM item AS i GROUP BY i.handle) AS i
            JOIN conversation AS c ON c.handle = i.handle
            LEFT JOIN LATERAL (
                SELECT true AS is_kept FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= c.group_id
                    AND (r.conversation_group_id, r.generation) >= (c.group_id, v_floor) AND r.queue_id + 0 = w.queue_id
                    AND r.rank_from_top + 0 = c.rank_from_top AND r.oldest + 0 <= i.oldest
                LIMIT 1
                FOR KEY SHARE SKIP LOCKED
            ) AS k ON true
            WHERE k.is_kept IS NULL
        )
        SELECT 'q:' || w.queue_id::text, w.conversations, (SELECT count(*) FROM counted) INTO v_notices, v_conversations, v_counted
        FROM whole AS w;
        IF FOUND THEN
            IF v_counted < v_conversations THEN
                RAISE EXCEPTION 'a conversation of this list was written at the same moment; run the transaction again'
                    USING ERRCODE = 'serialization_failure';
            END IF;
            RETURN QUERY SELECT dialoq.publish_notices(v_notices);
            RETURN;
        END IF;
        v_notices := NULL;
    END IF;
    IF NOT v_is_checked AND (SELECT count(DISTINCT u.handle) FROM unnest(p_conversation_handles) AS u (handle)) < v_count THEN
        -- A message whose conversation an earlier one of the list breaks is dropped, but the list is refused if it was not valid.
        PERFORM dialoq.check_each(p_conversation_handles, v_types, v_bodies, v_faults);
    END IF;
    FOR v_row IN
        SELECT b.item, b.error_number, b.error_message, b.notices
        FROM dialoq.send_batch(p_conversation_handles, v_types, v_bodies, v_traces, v_faults, v_ids, p_catalog_version, true) AS b
    LOOP
        IF v_row.error_number = -1 THEN
            RAISE EXCEPTION 'a conversation of this list was moved to another group at the same moment; run the transaction again'
                USING ERRCODE = 'serialization_failure';
        ELSIF v_row.error_number = 8429
            AND p_conversation_handles[v_row.item + 1] = ANY (p_conversation_handles[:v_row.item])
        THEN
            -- An earlier message of the list has broken the conversation: this one is dropped, as in send_in_order.
            CONTINUE;
        ELSIF v_row.error_number IS NOT NULL THEN
            PERFORM dialoq.fail(v_row.error_number,
                format('message %s of %s: %s', v_row.item + 1, v_count, v_row.error_message));
        END IF;
        v_notices := coalesce(v_notices, v_row.notices);
    END LOOP;
    RETURN QUERY SELECT v_notices;
END $$;
