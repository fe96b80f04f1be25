-- Reads what memory must know of every dead letter, without the bodies.
-- Takes: nothing
-- Gives: queuing_order, endpoint_id, conversation_handle, delivery_class, sequence, body_bytes
SELECT queuing_order, endpoint_id, conversation_handle, delivery_class, sequence, length(body) AS body_bytes
FROM dialoq_dead_letter ORDER BY queuing_order
