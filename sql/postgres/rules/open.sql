-- What END and the smaller verbs on one conversation have in common. A conversation that this side has ended stays so:
-- that is checked before the lock is waited for, and again under it.
-- Takes: the handle; the error if this side has ended, and the verb it names (NULL: END)
-- Gives: the endpoint, its group locked; words for others
CREATE OR REPLACE FUNCTION dialoq.lock_open(p_handle uuid, p_error integer, p_statement text, OUT endpoint_id bigint, OUT notices text)
LANGUAGE plpgsql AS $$
BEGIN
    SELECT l.endpoint_id, l.notices INTO lock_open.endpoint_id, lock_open.notices FROM dialoq.lock_handle(p_handle, false) AS l;
    IF lock_open.endpoint_id = -1 THEN
        PERFORM dialoq.check_not_ended(p_handle, p_error, p_statement);
        SELECT l.endpoint_id, l.notices INTO lock_open.endpoint_id, lock_open.notices FROM dialoq.lock_handle(p_handle, true) AS l;
    END IF;
    IF lock_open.endpoint_id IS NULL THEN
        PERFORM dialoq.fail(8426, format(
            'conversation handle %s was not found: it was never begun here, or it has ended', p_handle));
    END IF;
    PERFORM dialoq.check_not_ended(p_handle, p_error, p_statement);
END $$;

-- Refuses a verb on a conversation that this side has ended. An initiator whose peer has ended too is as good as gone:
-- only its group's holder removes the row.
CREATE OR REPLACE FUNCTION dialoq.check_not_ended(p_handle uuid, p_error integer, p_statement text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    e dialoq.conversation_endpoint;
    v_peer_state text;
BEGIN
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c WHERE c.conversation_handle = p_handle;
    IF e.state = 'DO' AND e.is_initiator THEN
        SELECT p.state INTO v_peer_state
        FROM dialoq.conversation_endpoint AS p WHERE p.conversation_id = e.conversation_id AND NOT p.is_initiator;
        IF v_peer_state IN ('DO', 'CD') OR v_peer_state IS NULL AND e.is_peer_known THEN
            PERFORM dialoq.fail(8426, format(
                'conversation handle %s was not found: it was never begun here, or it has ended', p_handle));
        END IF;
    END IF;
    IF e.state IN ('DO', 'CD') THEN
        PERFORM dialoq.fail(p_error, format('conversation %s is %s%s', p_handle, dialoq.state_name(e.state),
            coalesce('; ' || p_statement || ' needs one that this side has not ended', ': this side has ended it already')));
    END IF;
END $$;
