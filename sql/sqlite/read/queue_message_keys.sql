-- Reads what memory must know of every message, without the bodies.
-- Takes: nothing
-- Gives: queuing_order, endpoint_id, stored (the delivery class), sequence, message_type_id, body_bytes
SELECT queuing_order, endpoint_id, stored, sequence, message_type_id, length(body) AS body_bytes
FROM dialoq_queue_message ORDER BY queuing_order
