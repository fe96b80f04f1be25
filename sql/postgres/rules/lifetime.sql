-- The end of a conversation whose LIFETIME has run out, and of a closed endpoint after its retention.
-- Takes, Gives, Errors, Locks: see each function

-- The time at which an endpoint ends by itself: its lifetime, or the end of the time for which a closed endpoint is kept.
CREATE OR REPLACE FUNCTION dialoq.end_of_life(
    p_state text, p_lifetime timestamptz, p_security_timestamp timestamptz, p_closed_retention_s bigint) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE p_state
        WHEN 'CD' THEN coalesce(p_security_timestamp, p_lifetime + p_closed_retention_s * interval '1 second')
        ELSE p_lifetime
    END;
END $$;

-- Ends an endpoint whose time has run out, if it has. An open conversation breaks (-8489). An endpoint that this side has
-- ended is erased without a message, and its unsent messages with it. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.expire(p_endpoint_id bigint, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    e dialoq.conversation_endpoint;
    v_end timestamptz;
BEGIN
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id;
    SELECT dialoq.end_of_life(e.state, e.lifetime, e.security_timestamp, b.closed_retention_s) INTO v_end FROM dialoq.broker AS b;
    IF v_end <= p_now AND e.state IN ('SO', 'CO', 'DI') THEN
        RETURN dialoq.break_conversation(p_endpoint_id, -8489, 'the conversation has reached its LIFETIME', p_now);
    ELSIF v_end <= p_now AND e.state IN ('DO', 'CD') THEN
        PERFORM dialoq.erase(p_endpoint_id);
    END IF;
    RETURN NULL;
END $$;
