-- Writes an event notification, new or not.
-- Takes: ?1 event_notification_id, ?2 name, ?3 queue_id, ?4 event, ?5 service, ?6 conversation_handle
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_event_notification (
    event_notification_id, name, queue_id, event, service, conversation_handle
) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
