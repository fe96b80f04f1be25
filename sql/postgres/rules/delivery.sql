-- From one endpoint to the other: straight into the peer's queue, or into the transmission queue with the reason.
-- Waiting messages are tried again after a definition, such as a queue turned on.
-- Takes, Errors, Locks: see each function
-- Gives: notices where a function gives text

-- The way that a message of an endpoint would take now: 'peer' (the peer exists), 'service' (a message there makes the target),
-- 'peer_ended' (the peer has ended and gets no more messages), 'peer_missing' (the peer was erased without an end), 'delayed'
-- (with the status), 'refused' (with the code).
CREATE OR REPLACE FUNCTION dialoq.route(
    p_endpoint_id bigint, OUT way text, OUT peer_id bigint, OUT service_id integer, OUT status text, OUT code integer)
LANGUAGE plpgsql AS $$
DECLARE
    e dialoq.conversation_endpoint;
    v_broker record;
    v_peer record;
    v_service record;
BEGIN
    SELECT b.is_broker_enabled, b.service_broker_guid INTO v_broker FROM dialoq.broker AS b;
    IF NOT v_broker.is_broker_enabled THEN
        way := 'delayed';
        status := '9791: the broker is disabled in this database';
        RETURN;
    END IF;
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id;
    SELECT p.endpoint_id, p.state, p.is_system, q.is_enqueue_enabled INTO v_peer
    FROM dialoq.conversation_endpoint AS p
    LEFT JOIN dialoq.service AS s ON s.service_id = p.service_id
    LEFT JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    WHERE p.conversation_id = e.conversation_id AND p.is_initiator = NOT e.is_initiator;
    IF FOUND THEN
        peer_id := v_peer.endpoint_id;
        IF v_peer.state IN ('DO', 'CD') THEN
            way := 'peer_ended';
        ELSIF v_peer.is_system OR v_peer.is_enqueue_enabled THEN
            way := 'peer';
        ELSE
            way := 'delayed';
            status := '11219: the queue of the target service is disabled';
        END IF;
        RETURN;
    END IF;
    IF e.is_peer_known OR NOT e.is_initiator THEN
        way := 'peer_missing';
        RETURN;
    END IF;
    IF e.far_broker_instance <> v_broker.service_broker_guid::text THEN
        way := 'delayed';
        status := '9750: no route leads to the broker instance named';
        RETURN;
    END IF;
    SELECT s.service_id, q.is_enqueue_enabled INTO v_service
    FROM dialoq.service AS s LEFT JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    WHERE s.name = e.far_service;
    IF NOT FOUND THEN
        -- Only a target that names this broker is known not to be in another database.
        IF e.far_broker_instance IS NULL THEN
            way := 'delayed';
            status := '9793: no service of that name exists here';
        ELSE
            way := 'refused';
            code := -8490;
        END IF;
    ELSIF NOT EXISTS (
        SELECT FROM dialoq.service_contract_usage AS u
        WHERE u.service_id = v_service.service_id AND u.service_contract_id = e.service_contract_id)
    THEN
        way := 'refused';
        code := -8408;
    ELSIF v_service.is_enqueue_enabled THEN
        way := 'service';
        service_id := v_service.service_id;
    ELSE
        way := 'delayed';
        status := '11219: the queue of the target service is disabled';
    END IF;
END $$;

-- The description of the Error of a refused conversation.
CREATE OR REPLACE FUNCTION dialoq.refusal(p_endpoint_id bigint, p_code integer) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT CASE p_code
            WHEN -8490 THEN format('the broker named in BEGIN DIALOG has no service ''%s''', e.far_service)
            ELSE format('the target service ''%s'' does not support contract ''%s''', e.far_service, coalesce(c.name, ''))
        END
        FROM dialoq.conversation_endpoint AS e
        LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
        WHERE e.endpoint_id = p_endpoint_id);
END $$;

-- The target endpoint of a conversation, made when its first message arrives. The initiator's group is locked.
CREATE OR REPLACE FUNCTION dialoq.make_target(p_from bigint, p_service_id integer, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
BEGIN
    INSERT INTO dialoq.conversation_endpoint (
        conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator,
        far_service, state, priority, lifetime, receive_sequence, is_peer_known, is_system,
        is_quarantined, begun_at, due_at)
    SELECT dialoq.next_id(), e.conversation_id, dialoq.next_id(), p_service_id, e.service_contract_id, false,
        s.name, 'CO', dialoq.level_for(e.service_contract_id, p_service_id, s.name), e.lifetime, 0, true, false,
        false, p_now, CASE WHEN e.lifetime < p_now + interval '7300 days' THEN e.lifetime END
    FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.endpoint_id = p_from
    RETURNING endpoint_id INTO v_id;
    -- Its first SEND finds the row, and takes the short way.
    INSERT INTO dialoq.send_counter (endpoint_id, bucket, send_sequence) VALUES (v_id, 0, 0);
    UPDATE dialoq.conversation_endpoint AS e SET is_peer_known = true WHERE e.endpoint_id = p_from;
    RETURN v_id;
END $$;

-- Sends the first messages of conversations, those of a list whose target can be made at once, each with its message, in one statement.
-- The others are for dispatch. The caller holds their groups' locks and has checked the messages: nothing is wrong with them, and no
-- copy is to be kept. The transaction has a number.
-- Takes: the places of the list that are meant, each endpoint once; by place the endpoint, the group that was locked for it (it may have
--     been moved since it was read) and its message; whether all are to be sent or none
-- Gives: the places of those sent, with the queues of their targets; they arrive in the order of the places
CREATE OR REPLACE FUNCTION dialoq.send_first(
    p_places integer[], p_endpoint_ids bigint[], p_groups uuid[], p_message_type_ids integer[], p_bodies bytea[], p_traces text[], p_message_ids uuid[],
    p_is_all_or_none boolean)
RETURNS TABLE (place integer, queue_id integer)
LANGUAGE plpgsql AS $$
DECLARE
    b record;
    v_latest bigint;
BEGIN
    SELECT coalesce(n.manual_now, clock_timestamp()) AS now, n.service_broker_guid::text AS guid, n.is_broker_enabled INTO b
    FROM dialoq.broker AS n;
    IF NOT b.is_broker_enabled THEN
        RETURN;
    END IF;
    SELECT n.latest INTO v_latest FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1;
    RETURN QUERY
    WITH possible AS MATERIALIZED (
        SELECT i.place, e.*, t.*, dialoq.next_id() AS handle, dialoq.next_id() AS group_id,
            nextval('dialoq.conversation_endpoint_endpoint_id_seq') AS target_id,
            nextval('dialoq.queue_message_queuing_order_seq') AS queuing_order,
            v.level AS priority
        FROM unnest(p_places) AS i (place)
        CROSS JOIN LATERAL (
            SELECT c.ctid AS row, c.endpoint_id, c.conversation_id, c.service_contract_id, c.lifetime, c.far_service, s.name AS service
            FROM dialoq.conversation_endpoint AS c JOIN dialoq.service AS s ON s.service_id = c.service_id
            WHERE c.endpoint_id = p_endpoint_ids[i.place] AND c.conversation_group_id = p_groups[i.place] AND c.state = 'SO' AND c.is_initiator AND NOT c.is_peer_known AND NOT c.is_system
                AND (c.due_at IS NULL OR c.due_at > b.now) AND (c.far_broker_instance IS NULL OR c.far_broker_instance = b.guid)
                AND NOT EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = c.endpoint_id OFFSET 0)
                AND 'SO' = (SELECT dialoq.effective_state(c.state, f.message_type_id) FROM dialoq.first_system(c.endpoint_id) AS f)
                AND NOT EXISTS (SELECT FROM dialoq.send_counter AS n WHERE n.endpoint_id = c.endpoint_id OFFSET 0)
            OFFSET 0
        ) AS e
        CROSS JOIN LATERAL (
            SELECT s.service_id, q.queue_id AS queue
            FROM dialoq.service AS s
            JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
            JOIN dialoq.service_contract_usage AS u ON u.service_id = s.service_id AND u.service_contract_id = e.service_contract_id
            WHERE s.name = e.far_service AND q.is_enqueue_enabled AND q.queue_id > 0
            OFFSET 0
        ) AS t
        CROSS JOIN LATERAL dialoq.level_row(e.service_contract_id, t.service_id, e.service) AS v
    ), first AS MATERIALIZED (
        SELECT p.* FROM possible AS p WHERE NOT p_is_all_or_none OR cardinality(p_places) = (SELECT count(*) FROM possible)
    ), made AS (
        -- As make_target.
        INSERT INTO dialoq.conversation_endpoint (
            endpoint_id, conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator,
            far_service, state, priority, lifetime, receive_sequence, is_peer_known, is_system,
            is_quarantined, begun_at, due_at)
        OVERRIDING SYSTEM VALUE
        SELECT f.target_id, f.handle, f.conversation_id, f.group_id, f.service_id, f.service_contract_id, false,
            f.service, 'CO', f.priority, f.lifetime, 0, true, false,
            false, b.now, CASE WHEN f.lifetime < b.now + interval '7300 days' THEN f.lifetime END
        FROM first AS f
    ), counted AS (
        INSERT INTO dialoq.send_counter (endpoint_id, bucket, send_sequence)
        SELECT f.endpoint_id, 0, 1 FROM first AS f UNION ALL SELECT f.target_id, 0, 0 FROM first AS f
    ), spoken AS (
        UPDATE dialoq.conversation_endpoint AS c SET state = 'CO', is_peer_known = true FROM first AS f WHERE c.ctid = f.row
    ), sent AS (
        INSERT INTO dialoq.queue_message (
            queuing_order, endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace)
        OVERRIDING SYSTEM VALUE
        SELECT f.queuing_order, f.target_id, 0, 0, p_message_type_ids[f.place], coalesce(p_message_ids[f.place], gen_random_uuid()), b.now,
            CASE WHEN length(p_bodies[f.place]) > 0 THEN p_bodies[f.place] END, p_traces[f.place]
        FROM first AS f
    ), ready AS (
        -- As add_ready, for groups that are new.
        INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
        SELECT f.queue, 10 - f.priority, f.queuing_order, f.group_id, v_latest FROM first AS f
    )
    SELECT f.place, f.queue FROM first AS f;
END $$;

-- A message or an end reaches the other endpoint.
CREATE OR REPLACE FUNCTION dialoq.arrive(
    p_from bigint, p_to bigint, p_sequence bigint, p_message_type_id integer, p_message_id uuid, p_body bytea, p_trace text,
    p_is_end boolean, p_is_error boolean, p_body_fault text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    e record;
    v_order bigint;
    v_code integer;
    v_description text;
BEGIN
    IF p_is_error THEN
        RETURN dialoq.add_error(p_to, p_body);
    END IF;
    SELECT c.priority, c.conversation_group_id, c.is_system, s.queue_id INTO e
    FROM dialoq.conversation_endpoint AS c JOIN dialoq.service AS s ON s.service_id = c.service_id
    CROSS JOIN LATERAL dialoq.first_system(c.endpoint_id) AS f
    -- An endpoint that is disconnected or broken takes no more messages.
    WHERE c.endpoint_id = p_to AND dialoq.effective_state(c.state, f.message_type_id) = 'CO';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF e.is_system THEN
        -- The broker's own endpoint takes no message but the end.
        RETURN CASE WHEN p_is_end THEN dialoq.stop_notification(p_to, 2) END;
    END IF;
    IF NOT p_is_end AND p_body_fault <> '' THEN
        -- A body that fails validation breaks both sides. The receiver of bad XML sees another number than its sender.
        v_code := split_part(p_body_fault, '|', 1)::integer;
        v_description := substr(p_body_fault, strpos(p_body_fault, '|') + 1);
        RETURN concat_ws(' ',
            dialoq.raise_error(p_to, CASE v_code WHEN -9615 THEN -9616 ELSE v_code END, v_description),
            dialoq.break_conversation(p_from, v_code, v_description, p_now));
    END IF;
    INSERT INTO dialoq.queue_message (
        endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace)
    VALUES (p_to, 0, p_sequence, p_message_type_id, p_message_id, p_now, p_body, p_trace)
    RETURNING queuing_order INTO v_order;
    RETURN dialoq.add_ready(e.queue_id, e.priority, v_order, e.conversation_group_id);
END $$;

-- Sends a message or an end of an endpoint: delivers it if no earlier one waits and its way is free, else puts it into the
-- transmission queue. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.dispatch(
    p_from bigint, p_sequence bigint, p_message_type_id integer, p_message_id uuid, p_body bytea, p_trace text,
    p_is_end boolean, p_is_error boolean, p_body_fault text, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_route record;
    -- An Error overtakes waiting messages; every other message queues behind them.
    v_must_queue boolean := NOT p_is_error
        AND EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = p_from);
    v_to bigint;
BEGIN
    SELECT * INTO v_route FROM dialoq.route(p_from);
    IF v_must_queue OR v_route.way IN ('delayed', 'refused') THEN
        INSERT INTO dialoq.transmission (
            endpoint_id, sequence, message_type_id, is_conversation_error, is_end_of_dialog, message_id, enqueued_at,
            priority, body, trace, status, body_fault)
        SELECT p_from, p_sequence, p_message_type_id, p_is_error, p_is_end, p_message_id, p_now,
            e.priority, p_body, p_trace,
            CASE v_route.way WHEN 'delayed' THEN v_route.status
                WHEN 'refused' THEN dialoq.hold_status('ER')
                ELSE '' END,
            p_body_fault
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = p_from;
        IF v_must_queue THEN
            -- If the way has just become free, this delivers all waiting messages.
            RETURN CASE WHEN v_route.way <> 'delayed' THEN dialoq.redeliver(p_from) END;
        END IF;
        IF v_route.way = 'delayed' THEN
            -- A concurrent transaction may be removing the reason of the delay.
            PERFORM dialoq.request_recheck(p_from, true);
            RETURN dialoq.recheck_notice();
        END IF;
        RETURN dialoq.break_conversation(p_from, v_route.code, dialoq.refusal(p_from, v_route.code), p_now);
    END IF;
    IF v_route.way = 'peer_missing' THEN
        RETURN dialoq.break_conversation(p_from, -8462, 'the other endpoint of the conversation is gone', p_now);
    ELSIF v_route.way = 'peer_ended' THEN
        RETURN NULL;
    END IF;
    v_to := coalesce(v_route.peer_id, dialoq.make_target(p_from, v_route.service_id, p_now));
    RETURN dialoq.arrive(p_from, v_to, p_sequence, p_message_type_id, p_message_id, p_body, p_trace, p_is_end, p_is_error,
        p_body_fault, p_now);
END $$;

-- Tries to deliver a row of the transmission queue. The group of its endpoint is locked.
-- Takes: the row; the last row of its endpoint that this transaction has delivered, 0 if none. The index keeps the entries of
--     delivered rows until the commit: reading them again for each row took 56 s for 32,000 messages of one conversation.
-- Gives: notices, and whether the endpoint's next row may go now
CREATE OR REPLACE FUNCTION dialoq.deliver(p_transmission_id bigint, p_past bigint, OUT may_go_on boolean, OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    t dialoq.transmission;
    v_route record;
    v_state text;
    v_to bigint;
    v_now timestamptz := dialoq.current_time_utc();
BEGIN
    may_go_on := false;
    SELECT * INTO t FROM dialoq.transmission AS x WHERE x.transmission_id = p_transmission_id;
    SELECT e.state INTO v_state FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = t.endpoint_id;
    -- It is held until END, or an earlier message waits.
    IF v_state IS NULL OR v_state IN ('DI', 'ER') OR EXISTS (
        SELECT FROM dialoq.transmission AS x
        WHERE x.endpoint_id = t.endpoint_id AND x.transmission_id > p_past AND x.transmission_id < p_transmission_id)
    THEN
        RETURN;
    END IF;
    SELECT * INTO v_route FROM dialoq.route(t.endpoint_id);
    IF v_route.way = 'delayed' THEN
        PERFORM dialoq.hold_outbox(t.endpoint_id, v_route.status);
        RETURN;
    ELSIF v_route.way = 'refused' THEN
        IF v_state = 'DO' THEN
            -- Fire and forget: the sender has ended and gets no Error.
            PERFORM dialoq.erase(t.endpoint_id);
        ELSE
            notices := dialoq.break_conversation(t.endpoint_id, v_route.code, dialoq.refusal(t.endpoint_id, v_route.code), v_now);
        END IF;
        RETURN;
    END IF;
    DELETE FROM dialoq.transmission AS x WHERE x.transmission_id = p_transmission_id;
    may_go_on := true;
    IF v_route.way = 'peer_missing' THEN
        notices := dialoq.break_conversation(t.endpoint_id, -8462, 'the other endpoint of the conversation is gone', v_now);
    ELSIF v_route.way IN ('peer', 'service') THEN
        v_to := coalesce(v_route.peer_id, dialoq.make_target(t.endpoint_id, v_route.service_id, v_now));
        notices := dialoq.arrive(t.endpoint_id, v_to, t.sequence, t.message_type_id, t.message_id, t.body, t.trace,
            t.is_end_of_dialog, t.is_conversation_error, t.body_fault, v_now);
    END IF;
    IF (t.is_end_of_dialog OR t.is_conversation_error) AND v_state = 'DO' THEN
        notices := concat_ws(' ', notices, dialoq.finish(t.endpoint_id, v_now));
        may_go_on := false;
    END IF;
END $$;

-- Delivers the waiting messages of one endpoint, up to the first that cannot be delivered. Its group is locked.
CREATE OR REPLACE FUNCTION dialoq.redeliver(p_endpoint_id bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
    v_past bigint := 0;
    v_done record;
    v_notices text;
BEGIN
    LOOP
        SELECT t.transmission_id INTO v_id
        FROM dialoq.transmission AS t
        WHERE t.endpoint_id = p_endpoint_id AND t.transmission_id > v_past ORDER BY t.transmission_id LIMIT 1;
        EXIT WHEN v_id IS NULL;
        SELECT * INTO v_done FROM dialoq.deliver(v_id, v_past);
        IF v_done.notices IS NOT NULL AND strpos(coalesce(v_notices, ''), v_done.notices) = 0 THEN
            v_notices := concat_ws(' ', v_notices, v_done.notices);
        END IF;
        EXIT WHEN NOT v_done.may_go_on;
        v_past := v_id;
    END LOOP;
    RETURN dialoq.distinct_notices(v_notices);
END $$;

-- Why the messages in the transmission queue are held of an endpoint that an Error or the peer's END has reached.
CREATE OR REPLACE FUNCTION dialoq.hold_status(p_state text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_state
        WHEN 'DI' THEN '9779: the other side has ended the conversation; the message is held until END CONVERSATION'
        WHEN 'ER' THEN '9784: the conversation is in error; the message is held until END CONVERSATION' END
$$;

-- Writes the reason why all messages of an endpoint wait in the transmission queue. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.hold_outbox(p_endpoint_id bigint, p_status text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dialoq.transmission AS t SET status = p_status WHERE t.endpoint_id = p_endpoint_id AND t.status <> p_status;
END $$;

-- Retries all waiting messages after definitions have changed: sends those that can go, by level if HONOR_BROKER_PRIORITY is
-- ON, brings the reason of the rest up to date. Endpoints that another transaction holds are left to tick, and so is what
-- comes after the first 500: a transaction can hold only so many locks, and definitions should not hold up others.
-- Locks: the groups of messages that can be delivered or whose reason changes, without waiting
CREATE OR REPLACE FUNCTION dialoq.revisit_outboxes() RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN dialoq.revisit(false);
EXCEPTION
    WHEN transaction_rollback OR insufficient_resources OR object_not_in_prerequisite_state OR operator_intervention
        OR system_error THEN
        RAISE;
    WHEN others THEN
        RETURN dialoq.revisit(true);
END $$;

-- The same; p_is_alone: each delivery in a subtransaction of its own.
CREATE OR REPLACE FUNCTION dialoq.revisit(p_is_alone boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_honor boolean := (SELECT b.is_honor_broker_priority_on FROM dialoq.broker AS b);
    v_row record;
    v_route record;
    v_done record;
    v_notices text;
    v_held bigint[] := '{}';
    -- Of each, the last row that was delivered here.
    v_past bigint[];
    v_place integer;
    v_locked integer := 0;
    v_is_requested boolean := false;
BEGIN
    -- One check for each endpoint. An endpoint whose reason stays needs no lock.
    FOR v_row IN
        SELECT DISTINCT ON (t.endpoint_id) t.endpoint_id, t.status
        FROM dialoq.transmission AS t JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = t.endpoint_id
        WHERE e.state NOT IN ('DI', 'ER')
        ORDER BY t.endpoint_id, t.transmission_id
    LOOP
        SELECT * INTO v_route FROM dialoq.route(v_row.endpoint_id);
        IF v_route.way = 'delayed' THEN
            CONTINUE WHEN v_route.status = v_row.status;
            v_locked := v_locked + 1;
            IF v_locked > 500 THEN
                PERFORM dialoq.request_recheck(v_row.endpoint_id, true);
                v_is_requested := true;
                CONTINUE;
            END IF;
            IF p_is_alone THEN
                SELECT * INTO v_done FROM dialoq.do_step_alone('hold', v_row.endpoint_id, NULL, NULL);
            ELSE
                SELECT * INTO v_done FROM dialoq.do_step('hold', v_row.endpoint_id, NULL, NULL);
            END IF;
            IF v_done.is_done IS NULL THEN
                PERFORM dialoq.request_recheck(v_row.endpoint_id, true);
                v_is_requested := true;
            END IF;
            v_notices := concat_ws(' ', v_notices, v_done.notices);
        ELSE
            v_held := v_held || v_row.endpoint_id;
        END IF;
    END LOOP;
    v_held := ARRAY(
        SELECT t.endpoint_id FROM dialoq.transmission AS t WHERE t.endpoint_id = ANY (v_held)
        GROUP BY t.endpoint_id
        ORDER BY min(CASE WHEN v_honor THEN 10 - t.priority ELSE 0 END), min(t.transmission_id));
    v_locked := greatest(500 - v_locked, 0);
    IF cardinality(v_held) > v_locked THEN
        PERFORM dialoq.request_recheck(h.endpoint_id, true)
        FROM unnest(v_held) WITH ORDINALITY AS h (endpoint_id, place) WHERE h.place > v_locked ORDER BY h.place;
        v_notices := concat_ws(' ', v_notices, dialoq.due_notice(dialoq.current_time_utc()));
        v_held := v_held[:v_locked];
    END IF;
    v_past := array_fill(0::bigint, ARRAY[cardinality(v_held)]);
    FOR v_row IN
        SELECT t.transmission_id, t.endpoint_id
        FROM dialoq.transmission AS t
        WHERE t.endpoint_id = ANY (v_held)
        -- A message never goes before an earlier one of its conversation, whose level may be lower: REPRIORITISE changes
        -- the level of later messages only.
        ORDER BY CASE WHEN v_honor
            THEN max(10 - t.priority) OVER (PARTITION BY t.endpoint_id ORDER BY t.transmission_id) ELSE 0 END, t.transmission_id
    LOOP
        v_place := array_position(v_held, v_row.endpoint_id);
        IF p_is_alone THEN
            SELECT * INTO v_done
            FROM dialoq.do_step_alone('deliver', v_row.endpoint_id, v_row.transmission_id, NULL, v_past[v_place]);
        ELSE
            SELECT * INTO v_done FROM dialoq.do_step('deliver', v_row.endpoint_id, v_row.transmission_id, NULL, v_past[v_place]);
        END IF;
        IF NOT EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.transmission_id = v_row.transmission_id) THEN
            v_past[v_place] := v_row.transmission_id;
        END IF;
        v_notices := concat_ws(' ', v_notices, v_done.notices);
        IF v_done.is_done IS NULL THEN
            PERFORM dialoq.request_recheck(v_row.endpoint_id, true);
            v_is_requested := true;
        END IF;
        IF length(v_notices) > 4000 THEN
            v_notices := dialoq.distinct_notices(v_notices);
        END IF;
    END LOOP;
    RETURN dialoq.distinct_notices(concat_ws(' ', v_notices, CASE WHEN v_is_requested THEN dialoq.recheck_notice() END));
END $$;
