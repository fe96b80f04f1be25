-- Copies a received message to where it is kept until its conversation ends, with status 0.
-- Takes: ?1 queuing_order
-- Gives: nothing
INSERT INTO dialoq_retained_message (
    endpoint_id, queuing_order, status, stored, sequence, message_type_id, message_id, enqueued_at, body, trace
)
SELECT endpoint_id, queuing_order, 0, stored, sequence, message_type_id, message_id, enqueued_at, body, trace
FROM dialoq_queue_message WHERE queuing_order = ?1
