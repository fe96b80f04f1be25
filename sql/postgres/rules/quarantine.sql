-- Quarantine: a group that poison handling has set aside gives no messages until RELEASE QUARANTINE.
-- Takes, Gives, Errors, Locks: see each function

-- Puts a group into quarantine, or back into its queue. Both reset its count of rollbacks: a conversation that joins a quarantined
-- group begins at 0. A quarantine without an end takes the place of a pause, which has one. The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.set_quarantined(p_group uuid, p_is_quarantined boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dialoq.conversation_endpoint AS e
    SET is_quarantined = p_is_quarantined, rollbacks = 0, retry_at = NULL
    WHERE e.conversation_group_id = p_group;
    PERFORM dialoq.rebuild_ready_rows(p_group);
END $$;

-- Puts a group into quarantine until a moment, but for conversations in a quarantine without an end: the group may have others, which joined
-- it later. Its count of rollbacks stays. The caller holds the group's lock.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.pause_group(p_group uuid, p_retry_at timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dialoq.conversation_endpoint AS e
    SET is_quarantined = true, retry_at = p_retry_at, due_at = least(e.due_at, p_retry_at)
    WHERE e.conversation_group_id = p_group AND (NOT e.is_quarantined OR e.retry_at IS NOT NULL);
    PERFORM dialoq.rebuild_ready_rows(p_group);
    RETURN dialoq.due_notice(p_retry_at);
END $$;

-- Ends the pause of an endpoint, if it is over. The caller holds the group's lock, and writes the time of the next event.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.end_pause(p_endpoint_id bigint, p_now timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_group uuid;
    v_service_id integer;
BEGIN
    UPDATE dialoq.conversation_endpoint AS e SET is_quarantined = false, retry_at = NULL
    WHERE e.endpoint_id = p_endpoint_id AND e.retry_at <= p_now
    RETURNING e.conversation_group_id, e.service_id INTO v_group, v_service_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM dialoq.rebuild_ready_rows(v_group);
    RETURN 'q:' || (SELECT s.queue_id::text FROM dialoq.service AS s WHERE s.service_id = v_service_id);
END $$;
