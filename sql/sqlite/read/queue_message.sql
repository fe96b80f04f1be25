-- Reads one message by its key.
-- Takes: ?1 queuing_order
-- Gives: message_type_id, message_id, enqueued_at, body, trace
SELECT message_type_id, message_id, enqueued_at, body, trace
FROM dialoq_queue_message WHERE queuing_order = ?1
