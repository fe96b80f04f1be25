-- Says why a message of the transmission queue still waits.
-- Takes: ?1 transmission_id, ?2 status
-- Gives: nothing
UPDATE dialoq_transmission SET status = ?2 WHERE transmission_id = ?1
