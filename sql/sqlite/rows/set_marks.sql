-- Moves the marks at or above which no number was ever given out.
-- Takes: ?1 next_queuing_order, ?2 next_endpoint_id, ?3 next_transmission_id
-- Gives: nothing
UPDATE dialoq_broker SET next_queuing_order = ?1, next_endpoint_id = ?2, next_transmission_id = ?3 WHERE singleton = 1
