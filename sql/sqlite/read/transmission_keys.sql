-- Reads what memory must know of every message of the transmission queue, without the bodies.
-- Takes: nothing
-- Gives: transmission_id, endpoint_id, sequence, priority, is_end_of_dialog, is_conversation_error
SELECT transmission_id, endpoint_id, sequence, priority, is_end_of_dialog, is_conversation_error
FROM dialoq_transmission ORDER BY transmission_id
