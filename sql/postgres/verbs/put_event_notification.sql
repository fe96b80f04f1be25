-- Writes an event notification, new or not, or removes one. The routines of definition_effects.sql begin and end its conversation.
-- Takes: the columns of event_notification; or the event_notification_id
-- Gives: nothing
-- Errors: 60005
-- Locks: the row
-- Called by: dialoq_admin (put_event_notification, delete_event_notification)
CREATE FUNCTION dialoq.put_event_notification(
    p_event_notification_id integer, p_name text, p_queue_id integer, p_event text, p_service text,
    p_conversation_handle uuid
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    INSERT INTO dialoq.event_notification AS n (
        event_notification_id, name, queue_id, event, service, conversation_handle
    ) VALUES (
        p_event_notification_id, p_name, p_queue_id, p_event, p_service, p_conversation_handle
    ) ON CONFLICT (event_notification_id) DO UPDATE SET
        name = excluded.name, queue_id = excluded.queue_id, event = excluded.event, service = excluded.service,
        conversation_handle = excluded.conversation_handle;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_event_notification', SQLERRM);
END
$$;

CREATE FUNCTION dialoq.delete_event_notification(p_event_notification_id integer)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    DELETE FROM dialoq.event_notification WHERE event_notification_id = p_event_notification_id;
$$;
