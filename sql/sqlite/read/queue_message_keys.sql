-- Reads what memory must know of every message, without the bodies.
-- Takes: nothing
-- Gives: queuing_order, endpoint_id, stored, sequence
SELECT queuing_order, endpoint_id, stored, sequence
FROM dialoq_queue_message ORDER BY queuing_order
