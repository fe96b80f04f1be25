-- Copies a dead letter back into its queue; the caller deletes it from the dead letters.
-- Takes: ?1 queuing_order
-- Gives: nothing
INSERT INTO dialoq_queue_message (queuing_order, endpoint_id, stored, sequence, message_type_id, message_id, enqueued_at, body, trace)
SELECT queuing_order, endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace
FROM dialoq_dead_letter WHERE queuing_order = ?1
