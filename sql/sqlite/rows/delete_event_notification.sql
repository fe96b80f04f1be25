-- Removes an event notification.
-- Takes: ?1 event_notification_id
-- Gives: nothing
DELETE FROM dialoq_event_notification WHERE event_notification_id = ?1
