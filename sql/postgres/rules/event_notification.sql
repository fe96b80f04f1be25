-- Event notifications on queues, which are the broker's own conversations.
-- Takes, Errors, Locks: see each function
-- Gives: notices where a function gives text

-- Begins the conversation over which a notification sends its events, if it does not exist.
CREATE OR REPLACE FUNCTION dialoq.begin_notification(p_event_notification_id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := dialoq.current_time_utc();
BEGIN
    INSERT INTO dialoq.conversation_endpoint (
        conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator,
        far_service, state, priority, lifetime, receive_sequence, is_peer_known, is_system,
        is_quarantined, begun_at)
    SELECT n.conversation_handle, dialoq.next_id(), dialoq.next_id(), 1, 1, true,
        n.service, 'SO', 5, v_now + interval '2147483647 seconds', 0, false, true, false, v_now
    FROM dialoq.event_notification AS n
    WHERE n.event_notification_id = p_event_notification_id
    ON CONFLICT (conversation_handle) DO NOTHING;
END $$;

-- Ends the conversation of a dropped notification. Waits for a transaction that posts over it.
CREATE OR REPLACE FUNCTION dialoq.end_notification(p_conversation_handle uuid) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
    v_lock record;
BEGIN
    SELECT e.endpoint_id INTO v_id FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = p_conversation_handle;
    SELECT * INTO v_lock FROM dialoq.lock_endpoint(v_id, true);
    IF NOT v_lock.is_locked THEN
        RETURN v_lock.notices;
    END IF;
    RETURN concat_ws(' ', v_lock.notices, dialoq.end_endpoint(v_id, NULL, NULL, false, dialoq.current_time_utc()));
END $$;

-- The other side of a notification's conversation ended (`p_message_type_id` 2) or broke it (1): the notification
-- is dropped. If another transaction posts over it, the recheck drops it.
CREATE OR REPLACE FUNCTION dialoq.stop_notification(p_endpoint_id bigint, p_message_type_id integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_lock record;
BEGIN
    SELECT * INTO v_lock FROM dialoq.lock_endpoint(p_endpoint_id, false);
    IF v_lock.is_locked THEN
        RETURN concat_ws(' ', v_lock.notices, dialoq.break_notification(p_endpoint_id));
    ELSIF v_lock.is_locked IS NULL THEN
        INSERT INTO dialoq.queue_message (endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at)
        VALUES (p_endpoint_id, 2 - p_message_type_id, 0, p_message_type_id, gen_random_uuid(), dialoq.current_time_utc());
        PERFORM dialoq.request_recheck(p_endpoint_id);
    END IF;
    RETURN v_lock.notices;
END $$;

-- Drops a notification with its conversation, whose group is locked.
CREATE OR REPLACE FUNCTION dialoq.break_notification(p_endpoint_id bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_handle uuid;
BEGIN
    SELECT e.conversation_handle INTO v_handle FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = p_endpoint_id;
    PERFORM dialoq.erase(p_endpoint_id);
    DELETE FROM dialoq.event_notification AS n WHERE n.conversation_handle = v_handle;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE dialoq.broker SET catalog_version = catalog_version + 1;
    -- For check_catalog_version. A rollback to a savepoint undoes this too.
    PERFORM set_config('dialoq.versions_raised',
        (coalesce(nullif(current_setting('dialoq.versions_raised', true), ''), '0')::bigint + 1)::text, true);
    RETURN 'c';
END $$;

-- Posts this event of this queue to every notification on it.
CREATE OR REPLACE FUNCTION dialoq.post_event(p_queue_id integer, p_event text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamptz := dialoq.current_time_utc();
    v_row record;
    v_lock record;
    v_sequence bigint;
    v_notices text;
BEGIN
    FOR v_row IN
        SELECT e.endpoint_id, q.name
        FROM dialoq.event_notification AS n
        JOIN dialoq.service_queue AS q ON q.queue_id = n.queue_id
        JOIN dialoq.conversation_endpoint AS e ON e.conversation_handle = n.conversation_handle
        WHERE n.queue_id = p_queue_id AND n.event = p_event
        ORDER BY n.event_notification_id
    LOOP
        SELECT * INTO v_lock FROM dialoq.lock_endpoint(v_row.endpoint_id, true);
        v_notices := concat_ws(' ', v_notices, v_lock.notices);
        CONTINUE WHEN NOT v_lock.is_locked;
        UPDATE dialoq.conversation_endpoint AS e SET state = 'CO' WHERE e.endpoint_id = v_row.endpoint_id AND e.state <> 'CO';
        v_sequence := dialoq.count_sent(v_row.endpoint_id);
        v_notices := concat_ws(' ', v_notices, dialoq.dispatch(v_row.endpoint_id, v_sequence, 4, gen_random_uuid(),
            dialoq.event_body(p_event, v_row.name, v_now), NULL, false, false, NULL, v_now));
    END LOOP;
    RETURN v_notices;
END $$;
