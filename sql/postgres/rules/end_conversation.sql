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
    SELECT p.endpoint_id, p.state INTO v_peer
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
        -- The other side waits for a message only if the error was this side's alone.
        IF v_peer.state IN ('SO', 'CO') THEN
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
    IF v_peer.state = 'DO' THEN
        -- Both have ended now: the other side's unsent messages are dropped, and it need not wait for an answer.
        SELECT * INTO v_lock FROM dialoq.lock_endpoint(v_peer.endpoint_id, false);
        IF v_lock.is_locked IS NULL THEN
            PERFORM dialoq.request_recheck(v_peer.endpoint_id);
        END IF;
        v_notices := concat_ws(' ', v_notices, v_lock.notices);
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
