-- Removes the note of how far an endpoint has received.
-- Takes: ?1 endpoint_id
-- Gives: nothing
DELETE FROM dialoq_receive_sequence WHERE endpoint_id = ?1
