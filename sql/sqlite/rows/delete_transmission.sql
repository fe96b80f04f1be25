-- Removes a message from the transmission queue.
-- Takes: ?1 transmission_id
-- Gives: nothing
DELETE FROM dialoq_transmission WHERE transmission_id = ?1
