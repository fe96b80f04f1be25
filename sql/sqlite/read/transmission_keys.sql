-- Reads what memory must know of every message of the transmission queue, without the bodies.
-- Takes: nothing
-- Gives: transmission_id, endpoint_id, sequence, priority, is_end_of_dialog, is_conversation_error, body_bytes
SELECT transmission_id, endpoint_id, sequence, priority, is_end_of_dialog, is_conversation_error, length(body) AS body_bytes
FROM dialoq_transmission ORDER BY transmission_id
