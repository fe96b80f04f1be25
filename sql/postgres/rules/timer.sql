-- The dialog timer, and the time of the next event of an endpoint.
-- Takes, Gives, Errors, Locks: see each function

-- The time of the next event of an endpoint: its timer or its end. The end of a pause (retry_at) is for the caller to add. A conversation of the longest lifetime, 68 years, is not
-- worth an entry in the index for each of a million.
CREATE OR REPLACE FUNCTION dialoq.next_due(
    p_state text, p_lifetime timestamptz, p_dialog_timer timestamptz, p_security_timestamp timestamptz,
    p_closed_retention_s bigint, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_due timestamptz := least(p_dialog_timer, CASE WHEN p_state <> 'ER' THEN
        dialoq.end_of_life(p_state, p_lifetime, p_security_timestamp, p_closed_retention_s) END);
BEGIN
    RETURN CASE WHEN v_due < p_now + interval '7300 days' THEN v_due END;
END $$;

-- Writes the time of an endpoint's next event. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.reschedule(p_endpoint_id bigint, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_due timestamptz;
BEGIN
    UPDATE dialoq.conversation_endpoint AS c
    SET due_at = least(c.retry_at,
        dialoq.next_due(c.state, c.lifetime, c.dialog_timer, c.security_timestamp, b.closed_retention_s, p_now))
    FROM dialoq.broker AS b
    WHERE c.endpoint_id = p_endpoint_id
    RETURNING c.due_at INTO v_due;
    RETURN dialoq.due_notice(v_due);
END $$;

-- Sends the DialogTimer message of a timer that is due, and clears the timer. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.fire_timer(p_endpoint_id bigint, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dialoq.conversation_endpoint AS c SET dialog_timer = NULL WHERE c.endpoint_id = p_endpoint_id;
    RETURN dialoq.add_system_message(p_endpoint_id, 2, 3, NULL, p_now);
END $$;
