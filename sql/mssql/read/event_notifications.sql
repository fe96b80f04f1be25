-- Event notifications.
-- Takes: nothing
-- Gives: event_notification_id, name, queue_id, event, service, conversation_handle
SELECT
    event_notification_id, name, queue_id, event, service, conversation_handle
FROM dialoq.read_event_notifications ORDER BY event_notification_id
