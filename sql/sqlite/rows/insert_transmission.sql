-- Writes a message of the transmission queue.
-- Takes: ?1 transmission_id, ?2 endpoint_id, ?3 sequence, ?4 message_type_id, ?5 is_conversation_error, ?6 is_end_of_dialog, ?7 message_id, ?8 enqueued_at, ?9 priority, ?10 body, ?11 trace, ?12 status
-- Gives: nothing
INSERT INTO dialoq_transmission (
    transmission_id, endpoint_id, sequence, message_type_id, is_conversation_error, is_end_of_dialog,
    message_id, enqueued_at, priority, body, trace, status
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
