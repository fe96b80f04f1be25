-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: event_notification_id, name, queue_id, event, service, conversation_handle
SELECT
    event_notification_id, name, queue_id, event, service, conversation_handle
FROM dialoq_event_notification ORDER BY event_notification_id
