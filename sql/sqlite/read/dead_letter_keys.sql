-- Reads what memory must know of every dead letter, without the bodies.
-- Takes: nothing
-- Gives: queuing_order, endpoint_id, conversation_handle, delivery_class, sequence
SELECT queuing_order, endpoint_id, conversation_handle, delivery_class, sequence
FROM dialoq_dead_letter ORDER BY queuing_order
