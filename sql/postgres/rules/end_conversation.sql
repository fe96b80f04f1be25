-- The end of a conversation on one side.
-- Takes, Gives, Errors, Locks: see each function

-- Ends an endpoint whose group is locked, in one of the three forms: plain, with an error (`p_error_code` is not NULL), with
-- cleanup.
CREATE OR REPLACE FUNCTION dialoq.end_endpoint(
    p_endpoint_id bigint, p_error_code integer, p_description text, p_is_cleanup boolean, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    e dialoq.conversation_endpoint;
    v_peer record;
    v_lock record;
    v_rest record;
    v_notices text;
BEGIN
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id;
    SELECT p.endpoint_id, p.state, p.lifetime INTO v_peer
    FROM dialoq.conversation_endpoint AS p
    WHERE p.conversation_id = e.conversation_id AND p.is_initiator = NOT e.is_initiator;
    DELETE FROM dialoq.queue_message AS m WHERE m.endpoint_id = p_endpoint_id;
    IF FOUND THEN
        PERFORM dialoq.rebuild_ready_rows(e.conversation_group_id);
    END IF;
    DELETE FROM dialoq.retained_message AS m WHERE m.endpoint_id = p_endpoint_id;
    IF p_is_cleanup OR e.state IN ('SO', 'SI') THEN
        PERFORM dialoq.erase(p_endpoint_id);
    ELSIF e.state = 'CO' THEN
        IF p_error_code IS NOT NULL THEN
            DELETE FROM dialoq.transmission AS t WHERE t.endpoint_id = p_endpoint_id;
        END IF;
        IF p_error_code IS NOT NULL AND e.is_initiator AND NOT e.is_peer_known THEN
            -- The target has got no message of this conversation, and its first may not be an Error.
            PERFORM dialoq.erase(p_endpoint_id);
        ELSE
            v_notices := dialoq.send_end(p_endpoint_id, p_error_code, p_description, p_now);
        END IF;
    ELSIF e.state = 'DI' THEN
        DELETE FROM dialoq.transmission AS t WHERE t.endpoint_id = p_endpoint_id;
        v_notices := dialoq.finish(p_endpoint_id, p_now);
    ELSIF e.state = 'ER' THEN
        -- The other side waits for a message only if the error was this side's alone. One whose LIFETIME is over gets the Error of that,
        -- maybe at this moment: both sides reach it together.
        IF v_peer.state IN ('SO', 'CO') AND (v_peer.lifetime > p_now) IS NOT FALSE THEN
            v_notices := dialoq.raise_error(v_peer.endpoint_id, -8462, 'the other endpoint of the conversation has ended');
        END IF;
        PERFORM dialoq.erase(p_endpoint_id);
    END IF;
    -- The others of the group can be received from again, once this transaction is over.
    FOR v_rest IN
        SELECT DISTINCT r.queue_id FROM dialoq.ready_group AS r
        WHERE r.conversation_group_id <= e.conversation_group_id
            AND (r.conversation_group_id, r.generation) >= (e.conversation_group_id, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1))
    LOOP
        v_notices := concat_ws(' ', v_notices, 'q:' || v_rest.queue_id::text);
    END LOOP;
    -- Both have ended now: no side's unsent messages reach anyone, whatever delays them, and none need wait for an answer.
    IF v_peer.state = 'DO' THEN
        SELECT * INTO v_lock FROM dialoq.lock_endpoint(v_peer.endpoint_id, false);
        IF v_lock.is_locked IS NULL THEN
            PERFORM dialoq.request_recheck(v_peer.endpoint_id);
        END IF;
        v_notices := concat_ws(' ', v_notices, v_lock.notices);
    END IF;
    IF (v_peer.state IN ('DO', 'CD') OR v_peer.state IS NULL AND (e.is_peer_known OR NOT e.is_initiator))
        AND EXISTS (SELECT FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id AND c.state = 'DO')
    THEN
        DELETE FROM dialoq.transmission AS t WHERE t.endpoint_id = p_endpoint_id;
        -- As in send_end.
        PERFORM dialoq.request_recheck(p_endpoint_id);
        v_notices := concat_ws(' ', v_notices, dialoq.finish(p_endpoint_id, p_now));
    END IF;
    RETURN v_notices;
END $$;

-- Sends the end to the peer, behind the messages that wait, and leaves this side disconnected until it is delivered.
CREATE OR REPLACE FUNCTION dialoq.send_end(p_endpoint_id bigint, p_error_code integer, p_description text, p_now timestamptz)
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_sequence bigint := dialoq.count_sent(p_endpoint_id);
    v_is_error boolean := p_error_code IS NOT NULL;
    v_notices text;
BEGIN
    UPDATE dialoq.conversation_endpoint AS c
    SET state = 'DO', end_dialog_sequence = v_sequence, dialog_timer = NULL,
        due_at = dialoq.next_due('DO', c.lifetime, NULL, c.security_timestamp, b.closed_retention_s, p_now)
    FROM dialoq.broker AS b
    WHERE c.endpoint_id = p_endpoint_id;
    v_notices := dialoq.dispatch(p_endpoint_id, v_sequence, CASE WHEN v_is_error THEN 1 ELSE 2 END, gen_random_uuid(),
        CASE WHEN v_is_error THEN dialoq.error_body(p_error_code, p_description) END, NULL, NOT v_is_error, v_is_error, NULL,
        p_now);
    IF EXISTS (
        SELECT FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id AND c.state = 'DO')
        AND NOT EXISTS (
            SELECT FROM dialoq.transmission AS t
            WHERE t.endpoint_id = p_endpoint_id AND (t.is_end_of_dialog OR t.is_conversation_error))
    THEN
        -- A concurrent transaction that has not seen this end may still add a message for this endpoint.
        PERFORM dialoq.request_recheck(p_endpoint_id);
        v_notices := concat_ws(' ', v_notices, dialoq.finish(p_endpoint_id, p_now));
    END IF;
    RETURN v_notices;
END $$;

-- Ends conversations without an error: those of a list that are alone in their groups, with nothing unsent and no copy kept, whose
-- other side speaks or has ended. The others are for end_conversation. In one statement: of 32 ends each costs a tenth of what it costs
-- alone. The statement takes as long to start as one end alone. The transaction has a number.
-- Gives: of each the state before, as end_conversation gives it, NULL if it was left; notices
-- Locks: the groups, without waiting
CREATE OR REPLACE FUNCTION dialoq.end_plain(p_handles uuid[], OUT states text[], OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_keeps_locks boolean := coalesce(current_setting('dialoq.session_locks', true) = '1', false);
    b record;
    g record;
    v_endpoints bigint[];
    v_groups uuid[];
    v_are_ours boolean[];
    v_places bigint[];
    v_before text[];
    v_queues integer[];
    v_due timestamptz;
BEGIN
    SELECT array_agg(l.endpoint_id), array_agg(l.group_id), array_agg(l.is_ours) INTO v_endpoints, v_groups, v_are_ours
    FROM (
        SELECT e.endpoint_id, e.group_id, pg_try_advisory_xact_lock(dialoq.group_key(e.group_id))
            AND (NOT v_keeps_locks OR pg_try_advisory_lock(dialoq.group_key(e.group_id))) AS is_ours
        FROM unnest(p_handles) WITH ORDINALITY AS h (handle, place)
        LEFT JOIN LATERAL (
            SELECT c.endpoint_id, c.conversation_group_id AS group_id FROM dialoq.conversation_endpoint AS c
            WHERE c.conversation_handle = h.handle AND NOT c.is_system
            OFFSET 0
        ) AS e ON true
        ORDER BY h.place
    ) AS l;
    -- Statements of their own after the locks: they see what the holders before have committed.
    SELECT coalesce(n.manual_now, clock_timestamp()) AS now, n.is_broker_enabled, n.closed_retention_s, n.unconfirmed_retention_s INTO b
    FROM dialoq.broker AS n;
    SELECT n.floor, n.latest INTO g FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1;
    WITH plain AS MATERIALIZED (
        SELECT i.place, e.*, s.*, p.*, e.state = 'CO' AS is_first,
            CASE WHEN e.state = 'CO' OR s.sequence > 0 THEN b.closed_retention_s ELSE b.unconfirmed_retention_s END AS kept_s,
            nextval('dialoq.queue_message_queuing_order_seq') AS queuing_order
        FROM unnest(v_endpoints, v_groups, v_are_ours) WITH ORDINALITY AS i (endpoint_id, group_id, is_ours, place)
        CROSS JOIN LATERAL (
            SELECT c.ctid AS row, c.endpoint_id, c.conversation_group_id, c.conversation_id, c.is_initiator,
                dialoq.effective_state(c.state, f.message_type_id) AS state,
                EXISTS (SELECT FROM dialoq.queue_message AS m WHERE m.endpoint_id = c.endpoint_id OFFSET 0) AS has_messages,
                CASE WHEN c.state = 'CO' AND f.message_type_id = 2 THEN (
                    SELECT m.sequence + 1 FROM dialoq.queue_message AS m
                    WHERE m.endpoint_id = c.endpoint_id AND m.message_type_id = 2 AND m.message_type_id IN (1, 2, 3)) END AS end_at
            FROM dialoq.conversation_endpoint AS c
            CROSS JOIN LATERAL dialoq.first_system(c.endpoint_id) AS f
            WHERE c.endpoint_id = i.endpoint_id AND c.conversation_group_id = i.group_id AND c.state IN ('CO', 'DI')
                AND f.message_type_id IS DISTINCT FROM 1 AND (c.due_at IS NULL OR c.due_at > b.now)
                AND NOT EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = c.endpoint_id OFFSET 0)
                AND NOT EXISTS (SELECT FROM dialoq.retained_message AS m WHERE m.endpoint_id = c.endpoint_id OFFSET 0)
                AND NOT EXISTS (
                    SELECT FROM dialoq.conversation_endpoint AS o
                    WHERE o.conversation_group_id = c.conversation_group_id AND o.endpoint_id <> c.endpoint_id OFFSET 0)
            OFFSET 0
        ) AS e
        CROSS JOIN LATERAL dialoq.send_position(e.endpoint_id) AS s
        LEFT JOIN LATERAL (
            SELECT c.endpoint_id AS peer_id, c.conversation_group_id AS peer_group_id, c.state AS peer_state,
                (10 - c.priority)::smallint AS rank_from_top, CASE WHEN NOT c.is_system
                    AND dialoq.effective_state(c.state, f.message_type_id) = 'CO' THEN (
                    SELECT q.queue_id FROM dialoq.service AS s JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
                    WHERE s.service_id = c.service_id AND q.is_enqueue_enabled) END AS queue_id
            FROM dialoq.conversation_endpoint AS c
            CROSS JOIN LATERAL dialoq.first_system(c.endpoint_id) AS f
            WHERE c.conversation_id = e.conversation_id AND c.is_initiator = NOT e.is_initiator
            OFFSET 0
        ) AS p ON true
        -- Each once, and not together with its other side: the second sees what the first does.
        WHERE i.is_ours AND array_position(v_endpoints, i.endpoint_id) = i.place AND (p.peer_id = ANY (v_endpoints)) IS NOT TRUE
            AND CASE e.state WHEN 'CO' THEN b.is_broker_enabled AND p.queue_id > 0 ELSE p.peer_id IS NULL OR p.peer_state = 'CD' END
    ), unread AS MATERIALIZED (
        -- By their places: joined by endpoint_id, the server may begin with all messages of the table, dead ones too.
        SELECT m.ctid AS place FROM plain AS p
        CROSS JOIN LATERAL (
            SELECT m.ctid FROM dialoq.queue_message AS m WHERE m.endpoint_id = p.endpoint_id
            OFFSET 0
        ) AS m
        WHERE p.has_messages
    ), emptied AS (
        DELETE FROM dialoq.queue_message AS m USING unread AS u WHERE m.ctid = u.place
    ), stale AS MATERIALIZED (
        -- As rebuild_ready_rows, for a group without messages.
        SELECT r.ctid AS place FROM plain AS p
        CROSS JOIN LATERAL (
            SELECT r.ctid FROM dialoq.ready_group AS r
            WHERE r.conversation_group_id <= p.conversation_group_id AND (r.conversation_group_id, r.generation) >= (p.conversation_group_id, g.floor)
            FOR UPDATE SKIP LOCKED
        ) AS r
        WHERE p.has_messages
    ), unannounced AS (
        DELETE FROM dialoq.ready_group AS r USING stale AS s WHERE r.ctid = s.place
    ), sent AS (
        INSERT INTO dialoq.queue_message (
            queuing_order, endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at)
        OVERRIDING SYSTEM VALUE
        SELECT p.queuing_order, p.peer_id, 0, p.sequence, 2, gen_random_uuid(), b.now FROM plain AS p WHERE p.is_first
    ), ready AS (
        -- As add_ready, for all of them.
        INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
        SELECT p.queue_id, p.rank_from_top, least(p.queuing_order, (
                SELECT min(r.oldest) FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= p.peer_group_id AND (r.conversation_group_id, r.generation) >= (p.peer_group_id, g.floor))),
            p.peer_group_id, g.latest
        FROM plain AS p
        LEFT JOIN LATERAL (
            SELECT true AS is_kept FROM dialoq.ready_group AS r
            WHERE r.conversation_group_id <= p.peer_group_id
                AND (r.conversation_group_id, r.generation) >= (p.peer_group_id, g.floor) AND r.queue_id + 0 = p.queue_id
                AND r.rank_from_top + 0 = p.rank_from_top AND r.oldest + 0 <= p.queuing_order
            LIMIT 1
            FOR KEY SHARE SKIP LOCKED
        ) AS k ON true
        WHERE p.is_first AND k.is_kept IS NULL
    ), erased AS (
        -- Only the holder of a group's lock writes an endpoint's row, so a place is still that of its row.
        DELETE FROM dialoq.conversation_endpoint AS c USING plain AS p WHERE c.ctid = p.row AND p.is_initiator
    ), uncounted AS (
        DELETE FROM dialoq.send_counter AS n USING plain AS p WHERE n.ctid = p.counter AND p.is_initiator
    ), closed AS (
        -- As finish.
        UPDATE dialoq.conversation_endpoint AS c
        SET state = 'CD', dialog_timer = NULL, security_timestamp = b.now + p.kept_s * interval '1 second',
            due_at = dialoq.next_due('CD', c.lifetime, NULL, b.now + p.kept_s * interval '1 second', b.closed_retention_s, b.now),
            end_dialog_sequence = CASE WHEN p.is_first THEN p.sequence ELSE c.end_dialog_sequence END,
            receive_sequence = coalesce(p.end_at, c.receive_sequence)
        FROM plain AS p WHERE c.ctid = p.row AND NOT p.is_initiator
        RETURNING c.due_at
    ), counted AS (
        -- Also if nothing is counted, as touch_counter.
        UPDATE dialoq.send_counter AS n
        SET send_sequence = p.sequence + p.is_first::integer, bucket = (p.sequence + p.is_first::integer) / 32
        FROM plain AS p WHERE n.ctid = p.counter AND NOT p.is_initiator
    ), noted AS (
        -- A concurrent transaction that has not seen this end may still add a message for the endpoint.
        INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at)
        SELECT p.endpoint_id, clock_timestamp() FROM plain AS p WHERE p.is_first
    )
    SELECT array_agg(p.place), array_agg(p.state), array_agg(DISTINCT p.queue_id) FILTER (WHERE p.is_first), (SELECT min(c.due_at) FROM closed AS c)
    INTO v_places, v_before, v_queues, v_due FROM plain AS p;
    states := ARRAY(
        SELECT v_before[array_position(v_places, h.place)] FROM unnest(p_handles) WITH ORDINALITY AS h (handle, place) ORDER BY h.place);
    notices := concat_ws(' ', (SELECT string_agg('q:' || q.id::text, ' ') FROM unnest(v_queues) AS q (id)), dialoq.due_notice(v_due));
END $$;
