-- Writes how far an endpoint has received, new or not.
-- Takes: ?1 endpoint_id, ?2 receive_sequence
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_receive_sequence (
    endpoint_id, receive_sequence
) VALUES (?1, ?2)
