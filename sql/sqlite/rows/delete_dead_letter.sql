-- Removes a dead letter.
-- Takes: ?1 queuing_order
-- Gives: nothing
DELETE FROM dialoq_dead_letter WHERE queuing_order = ?1
