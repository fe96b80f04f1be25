-- One endpoint: its pending messages, which have arrived and are not in its row yet; its Error; its end.
-- Takes, Errors, Locks: see each function
-- Gives: notices where a function gives text

-- The state of an endpoint once its queue is applied: an Error breaks it, an EndDialog disconnects it. The view
-- effective_endpoint repeats this: a reader of a view needs rights on its functions.
-- Takes: the state of its row; what first_system gives
CREATE OR REPLACE FUNCTION dialoq.effective_state(p_state text, p_first_system integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_first_system
        WHEN 1 THEN CASE WHEN p_state IN ('SO', 'CO', 'DI') THEN 'ER' ELSE p_state END
        WHEN 2 THEN CASE p_state WHEN 'CO' THEN 'DI' ELSE p_state END
        ELSE p_state END
$$;

-- The lowest type of the system's messages in the queue of an endpoint: 1 Error, 2 EndDialog, 3 DialogTimer; NULL if there is
-- none. A table with one row, because the planner puts only such a function into the statement that calls it.
CREATE OR REPLACE FUNCTION dialoq.first_system(p_endpoint_id bigint) RETURNS TABLE (message_type_id integer)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT min(m.message_type_id) FROM dialoq.queue_message AS m
    WHERE m.endpoint_id = p_endpoint_id AND m.message_type_id IN (1, 2, 3)
$$;

-- Notes whether the question "is there any message of the system, or any in the transmission queue?" walks over dead rows. A batch asks
-- it once, instead of reading those of each endpoint, which costs 5 us a message. While an old snapshot is held, the answer
-- reads every such message since, some 0.2 us each: a minute of dialogs that end makes it slower than 64 endpoints.
CREATE OR REPLACE FUNCTION dialoq.watch_dead_rows() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now CONSTANT timestamptz := clock_timestamp();
    v_before bigint;
    v_asks_each boolean;
    g dialoq.ready_generation;
BEGIN
    SELECT * INTO g FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1;
    -- If the server's clock was set back, the time may be far away.
    IF g.asks_next_at BETWEEN v_now AND v_now + interval '1 hour' THEN
        RETURN;
    END IF;
    v_before := dialoq.dead_rows_read();
    PERFORM WHERE EXISTS (SELECT FROM dialoq.queue_message AS m WHERE m.message_type_id IN (1, 2, 3))
        OR EXISTS (SELECT FROM dialoq.transmission);
    v_asks_each := dialoq.dead_rows_read() - v_before > 200;
    IF NOT v_asks_each AND NOT g.asks_each THEN
        RETURN;
    END IF;
    PERFORM FROM dialoq.ready_generation AS n WHERE n.turn = g.turn FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    DELETE FROM dialoq.ready_generation AS n WHERE n.turn = g.turn;
    g.turn := g.turn + 1;
    g.asks_each := v_asks_each;
    -- The question takes a hundredth of the time at most.
    g.asks_next_at := CASE WHEN v_asks_each THEN v_now + greatest(interval '5 s', 100 * (clock_timestamp() - v_now)) ELSE '-infinity' END;
    INSERT INTO dialoq.ready_generation VALUES (g.*);
END $$;

-- The rows that this session has read for that question.
CREATE OR REPLACE FUNCTION dialoq.dead_rows_read() RETURNS bigint
LANGUAGE sql AS $$
    SELECT sum(pg_stat_get_xact_tuples_returned(r.id))
    FROM (
        VALUES ('dialoq.queue_message_system'::regclass::oid), ('dialoq.transmission'::regclass::oid)
        UNION ALL
        SELECT i.indexrelid FROM pg_index AS i WHERE i.indrelid = 'dialoq.transmission'::regclass
    ) AS r (id)
$$;

-- Whether an endpoint has messages or due events that are not in its row yet.
CREATE OR REPLACE FUNCTION dialoq.has_pending(p_endpoint dialoq.conversation_endpoint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF p_endpoint.due_at IS NOT NULL AND p_endpoint.due_at <= dialoq.current_time_utc() OR p_endpoint.state = 'DO' THEN
        RETURN true;
    END IF;
    RETURN (
        SELECT dialoq.effective_state(p_endpoint.state, f.message_type_id) <> p_endpoint.state
        FROM dialoq.first_system(p_endpoint.endpoint_id) AS f);
END $$;

-- Writes the messages that have arrived and the events that are due into an endpoint's row. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.apply_pending(p_endpoint_id bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    e dialoq.conversation_endpoint;
    v_now timestamptz := dialoq.current_time_utc();
    v_state text;
    v_notices text;
    v_peer_state text;
BEGIN
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF e.is_system THEN
        IF EXISTS (SELECT FROM dialoq.queue_message AS m WHERE m.endpoint_id = p_endpoint_id) THEN
            RETURN dialoq.break_notification(p_endpoint_id);
        END IF;
        RETURN NULL;
    END IF;
    SELECT dialoq.effective_state(e.state, f.message_type_id) INTO v_state FROM dialoq.first_system(p_endpoint_id) AS f;
    IF v_state <> e.state THEN
        PERFORM dialoq.put_state(p_endpoint_id, v_state, v_now);
        IF v_state = 'DI' THEN
            UPDATE dialoq.conversation_endpoint AS c SET receive_sequence = m.sequence + 1
            FROM dialoq.queue_message AS m
            WHERE c.endpoint_id = p_endpoint_id AND m.endpoint_id = p_endpoint_id AND m.message_type_id = 2
                AND m.message_type_id IN (1, 2, 3);
        ELSIF v_state = 'ER' THEN
            -- Transactions that did not see each other may have raised an Error each. The first is the only one.
            DELETE FROM dialoq.queue_message AS m
            WHERE m.endpoint_id = p_endpoint_id AND m.message_type_id = 1 AND m.message_type_id IN (1, 2, 3)
                AND m.queuing_order > (
                    SELECT min(n.queuing_order) FROM dialoq.queue_message AS n
                    WHERE n.endpoint_id = p_endpoint_id AND n.message_type_id = 1 AND n.message_type_id IN (1, 2, 3));
        END IF;
        PERFORM dialoq.hold_outbox(p_endpoint_id, dialoq.hold_status(v_state));
    END IF;
    IF e.state = 'DO' THEN
        SELECT p.state INTO v_peer_state
        FROM dialoq.conversation_endpoint AS p
        WHERE p.conversation_id = e.conversation_id AND p.is_initiator = NOT e.is_initiator;
        -- Both have ended: the unsent messages are dropped, and the endpoint need not wait for an answer.
        IF v_peer_state IN ('DO', 'CD') OR v_peer_state IS NULL AND (e.is_peer_known OR NOT e.is_initiator) THEN
            DELETE FROM dialoq.transmission AS t WHERE t.endpoint_id = p_endpoint_id;
            RETURN dialoq.finish(p_endpoint_id, v_now);
        END IF;
    END IF;
    IF e.state IN ('DO', 'CD') THEN
        DELETE FROM dialoq.queue_message AS m WHERE m.endpoint_id = p_endpoint_id;
    END IF;
    IF e.due_at <= v_now THEN
        v_notices := dialoq.end_pause(p_endpoint_id, v_now);
        IF e.dialog_timer <= v_now THEN
            v_notices := concat_ws(' ', v_notices, dialoq.fire_timer(p_endpoint_id, v_now));
        END IF;
        v_notices := concat_ws(' ', v_notices, dialoq.expire(p_endpoint_id, v_now), dialoq.reschedule(p_endpoint_id, v_now));
    END IF;
    RETURN v_notices;
END $$;

-- Writes the EndDialogs that have arrived into the rows of endpoints that speak and have nothing else pending and nothing unsent, all in
-- one statement. The caller holds the locks of their groups.
-- Gives: the endpoints that are left, for apply_pending
CREATE OR REPLACE FUNCTION dialoq.apply_ends(p_endpoint_ids bigint[], p_now timestamptz) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    v_done bigint[];
BEGIN
    WITH ended AS MATERIALIZED (
        SELECT e.row, e.endpoint_id, e.next, s.counter, s.sequence
        FROM unnest(p_endpoint_ids) AS i (endpoint_id)
        CROSS JOIN LATERAL (
            SELECT c.ctid AS row, c.endpoint_id, (
                SELECT m.sequence + 1 FROM dialoq.queue_message AS m
                WHERE m.endpoint_id = c.endpoint_id AND m.message_type_id = 2 AND m.message_type_id IN (1, 2, 3)) AS next
            FROM dialoq.conversation_endpoint AS c
            CROSS JOIN LATERAL dialoq.first_system(c.endpoint_id) AS f
            WHERE c.endpoint_id = i.endpoint_id AND c.state = 'CO' AND f.message_type_id = 2 AND NOT c.is_system AND c.rollbacks = 0
                AND (c.due_at IS NULL OR c.due_at > p_now)
                AND NOT EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = c.endpoint_id OFFSET 0)
            OFFSET 0
        ) AS e
        LEFT JOIN LATERAL dialoq.send_position(e.endpoint_id) AS s ON true
    ), put AS (
        -- As put_state.
        UPDATE dialoq.conversation_endpoint AS c
        SET state = 'DI', receive_sequence = e.next,
            due_at = least(c.retry_at, dialoq.next_due('DI', c.lifetime, c.dialog_timer, c.security_timestamp, NULL, p_now))
        FROM ended AS e WHERE c.ctid = e.row
    ), touched AS (
        UPDATE dialoq.send_counter AS n SET send_sequence = e.sequence FROM ended AS e WHERE n.ctid = e.counter
    )
    SELECT array_agg(e.endpoint_id) INTO v_done FROM ended AS e;
    IF v_done IS NULL THEN
        RETURN p_endpoint_ids;
    END IF;
    RETURN ARRAY(SELECT i.id FROM unnest(p_endpoint_ids) AS i (id) WHERE NOT i.id = ANY (v_done));
END $$;

-- Writes the state of an endpoint. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.put_state(p_endpoint_id bigint, p_state text, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dialoq.conversation_endpoint AS c
    SET state = p_state,
        due_at = least(c.retry_at,
            dialoq.next_due(p_state, c.lifetime, c.dialog_timer, c.security_timestamp, b.closed_retention_s, p_now))
    FROM dialoq.broker AS b
    WHERE c.endpoint_id = p_endpoint_id;
    PERFORM dialoq.touch_counter(p_endpoint_id);
END $$;

-- Queues an Error (delivery_class 1, type 1) or a DialogTimer (delivery_class 2, type 3). Needs no lock.
CREATE OR REPLACE FUNCTION dialoq.add_system_message(
    p_endpoint_id bigint, p_delivery_class integer, p_message_type_id integer, p_body bytea, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_order bigint;
    e record;
BEGIN
    SELECT c.priority, c.conversation_group_id, s.queue_id INTO e
    FROM dialoq.conversation_endpoint AS c JOIN dialoq.service AS s ON s.service_id = c.service_id
    WHERE c.endpoint_id = p_endpoint_id;
    IF NOT FOUND THEN
        -- Its service is being dropped too, which erases this endpoint.
        RETURN NULL;
    END IF;
    INSERT INTO dialoq.queue_message (endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body)
    VALUES (p_endpoint_id, p_delivery_class, 0, p_message_type_id, gen_random_uuid(), p_now, p_body)
    RETURNING queuing_order INTO v_order;
    RETURN dialoq.add_ready(e.queue_id, e.priority, v_order, e.conversation_group_id);
END $$;

-- Queues an Error for an endpoint, before all other messages. The next session that locks the group writes the state. Needs no
-- lock. A caller that holds the group's lock uses break_conversation, which writes the state too.
CREATE OR REPLACE FUNCTION dialoq.raise_error(p_endpoint_id bigint, p_code integer, p_description text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN dialoq.add_error(p_endpoint_id, dialoq.error_body(p_code, p_description));
END $$;

-- The same with a body that is made already.
CREATE OR REPLACE FUNCTION dialoq.add_error(p_endpoint_id bigint, p_body bytea) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_is_system boolean;
BEGIN
    PERFORM pg_current_xact_id();
    SELECT c.is_system INTO v_is_system
    FROM dialoq.conversation_endpoint AS c CROSS JOIN LATERAL dialoq.first_system(c.endpoint_id) AS f
    -- An endpoint that is broken or has ended discards an Error.
    WHERE c.endpoint_id = p_endpoint_id AND dialoq.effective_state(c.state, f.message_type_id) IN ('SO', 'CO', 'DI');
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF v_is_system THEN
        RETURN dialoq.stop_notification(p_endpoint_id, 1);
    END IF;
    RETURN dialoq.add_system_message(p_endpoint_id, 1, 1, p_body, dialoq.current_time_utc());
END $$;

-- Breaks an endpoint: its Error and its state. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.break_conversation(
    p_endpoint_id bigint, p_code integer, p_description text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_notices text := dialoq.raise_error(p_endpoint_id, p_code, p_description);
BEGIN
    RETURN concat_ws(' ', v_notices, dialoq.apply_pending(p_endpoint_id));
END $$;

-- This side has ended and has no row left to send: an initiator is erased, a target stays CLOSED for its retention. The caller
-- holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.finish(p_endpoint_id bigint, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    e dialoq.conversation_endpoint;
    v_broker dialoq.broker;
    v_security timestamptz;
    v_due timestamptz;
BEGIN
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id;
    IF e.is_initiator THEN
        PERFORM dialoq.erase(p_endpoint_id);
        RETURN NULL;
    END IF;
    SELECT * INTO v_broker FROM dialoq.broker;
    -- The target has reached the initiator if the initiator got a message, or the target's END before its own.
    v_security := p_now + interval '1 second'
        * CASE WHEN EXISTS (SELECT FROM dialoq.send_position(p_endpoint_id) AS n WHERE n.sequence > 0)
            THEN v_broker.closed_retention_s ELSE v_broker.unconfirmed_retention_s END;
    v_due := dialoq.next_due('CD', e.lifetime, NULL, v_security, v_broker.closed_retention_s, p_now);
    UPDATE dialoq.conversation_endpoint AS c
    SET state = 'CD', dialog_timer = NULL, security_timestamp = v_security, due_at = v_due
    WHERE c.endpoint_id = p_endpoint_id;
    DELETE FROM dialoq.queue_message AS m WHERE m.endpoint_id = p_endpoint_id;
    PERFORM dialoq.rebuild_ready_rows(e.conversation_group_id);
    RETURN dialoq.due_notice(v_due);
END $$;

-- Removes an endpoint with its messages. The caller holds the group's lock. A concurrent transaction that has not seen this may
-- still add a message for the endpoint; the recheck finds it.
CREATE OR REPLACE FUNCTION dialoq.erase(p_endpoint_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    e dialoq.conversation_endpoint;
    v_peer record;
    v_removed bigint;
    v_sent bigint;
BEGIN
    DELETE FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id RETURNING * INTO e;
    IF e.endpoint_id IS NULL THEN
        RETURN;
    END IF;
    DELETE FROM dialoq.send_counter AS n USING dialoq.send_position(p_endpoint_id) AS p WHERE n.ctid = p.counter
    RETURNING p.sequence INTO v_sent;
    DELETE FROM dialoq.queue_message AS m WHERE m.endpoint_id = p_endpoint_id;
    GET DIAGNOSTICS v_removed = ROW_COUNT;
    DELETE FROM dialoq.retained_message AS m WHERE m.endpoint_id = p_endpoint_id;
    DELETE FROM dialoq.transmission AS t WHERE t.endpoint_id = p_endpoint_id;
    IF v_removed > 0 THEN
        PERFORM dialoq.rebuild_ready_rows(e.conversation_group_id);
    END IF;
    SELECT p.endpoint_id, p.conversation_group_id, p.state INTO v_peer
    FROM dialoq.conversation_endpoint AS p
    WHERE p.conversation_id = e.conversation_id AND p.is_initiator = NOT e.is_initiator;
    -- An endpoint that has ended may still have a message in the transmission queue, which is delivered at this moment. One that sends
    -- no more may have ended in a transaction that has committed since the messages were deleted.
    IF v_peer.state <> 'CD' OR EXISTS (SELECT FROM dialoq.queue_message AS m WHERE m.endpoint_id = p_endpoint_id) THEN
        PERFORM dialoq.request_recheck(p_endpoint_id);
    END IF;
    IF v_peer.state NOT IN ('DO', 'CD') THEN
        -- The row with the peer's receive position is gone. A peer without an EndDialog gets the position, if its group is free.
        IF e.state <> 'DO' AND dialoq.try_lock_group(v_peer.conversation_group_id) THEN
            UPDATE dialoq.conversation_endpoint AS p SET receive_sequence = greatest(p.receive_sequence, v_sent)
            WHERE p.endpoint_id = v_peer.endpoint_id;
        END IF;
    END IF;
END $$;

-- Begins dialogs in new groups: those of a list whose arguments are plain, so no other conversation or group, and no broker but this
-- one. The others, what is wrong among them, are for begin_dialog_conversation. The transaction has a number.
-- Takes: of each its arguments, and ids, of which no handle and no group is there twice
-- Gives: of each whether it has begun; notices
CREATE OR REPLACE FUNCTION dialoq.begin_plain(
    p_from_services text[], p_to_services text[], p_broker_instances text[], p_contracts text[], p_lifetimes_s bigint[],
    p_conversation_handles uuid[], p_conversation_ids uuid[], p_conversation_group_ids uuid[], OUT are_begun boolean[], OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_nil CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    v_keeps_locks boolean := coalesce(current_setting('dialoq.session_locks', true) = '1', false);
    v_are_ours boolean[];
    v_begun uuid[];
    v_due timestamptz;
BEGIN
    -- The locks come first: the statement behind them sees whether a group is new.
    v_are_ours := ARRAY(
        SELECT pg_try_advisory_xact_lock(dialoq.group_key(g.id))
            AND (NOT v_keeps_locks OR pg_try_advisory_lock(dialoq.group_key(g.id)))
        FROM unnest(p_conversation_group_ids) WITH ORDINALITY AS g (id, place)
        ORDER BY g.place);
    WITH begun AS (
        INSERT INTO dialoq.conversation_endpoint (
            conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator,
            far_service, far_broker_instance, state, priority, lifetime, receive_sequence, is_peer_known,
            is_system, is_quarantined, begun_at, due_at)
        SELECT i.handle, i.conversation_id, i.group_id, s.service_id, c.service_contract_id, true,
            i.to_service, CASE WHEN i.instance IS NOT NULL THEN b.service_broker_guid::text END, 'SO',
            v.level, l.lifetime, 0, false,
            false, false, b.now, CASE WHEN l.lifetime < b.now + interval '7300 days' THEN l.lifetime END
        FROM (
            SELECT coalesce(b.manual_now, clock_timestamp()) AS now, b.service_broker_guid FROM dialoq.broker AS b
            OFFSET 0
        ) AS b
        CROSS JOIN unnest(p_from_services, p_to_services, p_broker_instances, p_contracts, p_lifetimes_s, p_conversation_handles,
                p_conversation_ids, p_conversation_group_ids, v_are_ours)
            AS i (from_service, to_service, instance, contract, lifetime_s, handle, conversation_id, group_id, is_ours)
        CROSS JOIN LATERAL (
            SELECT s.service_id FROM dialoq.service AS s WHERE s.name = i.from_service
            OFFSET 0
        ) AS s
        CROSS JOIN LATERAL (
            SELECT c.service_contract_id FROM dialoq.service_contract AS c
            WHERE c.name = coalesce(i.contract, 'DEFAULT') AND NOT c.is_dropped
            OFFSET 0
        ) AS c
        CROSS JOIN LATERAL dialoq.level_row(c.service_contract_id, s.service_id, i.to_service) AS v
        CROSS JOIN LATERAL (
            SELECT b.now + coalesce(i.lifetime_s, 2147483647) * interval '1 second' AS lifetime
            WHERE coalesce(i.lifetime_s, 2147483647) BETWEEN 1 AND 2147483647
        ) AS l
        WHERE i.is_ours AND length(i.to_service) BETWEEN 1 AND 256
            AND (i.instance IS NULL OR upper(i.instance COLLATE "C") = 'CURRENT DATABASE')
            AND i.handle <> v_nil AND i.conversation_id <> v_nil AND i.group_id <> v_nil
            AND NOT EXISTS (SELECT FROM dialoq.conversation_endpoint AS e WHERE e.conversation_group_id = i.group_id OFFSET 0)
            -- Else the conversation would be the other side of an existing one.
            AND NOT EXISTS (SELECT FROM dialoq.conversation_endpoint AS e WHERE e.conversation_id = i.conversation_id OFFSET 0)
        ON CONFLICT DO NOTHING
        RETURNING conversation_handle, due_at
    )
    SELECT array_agg(b.conversation_handle), min(b.due_at) INTO v_begun, v_due FROM begun AS b;
    are_begun := ARRAY(
        SELECT coalesce(h.handle = ANY (v_begun), false)
        FROM unnest(p_conversation_handles) WITH ORDINALITY AS h (handle, place) ORDER BY h.place);
    notices := dialoq.due_notice(v_due);
END $$;
