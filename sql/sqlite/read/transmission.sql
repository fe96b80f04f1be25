-- Reads one message of the transmission queue by its key.
-- Takes: ?1 transmission_id
-- Gives: transmission_id, endpoint_id, sequence, message_type_id, is_conversation_error, is_end_of_dialog, message_id, enqueued_at, priority, body, trace, status
SELECT
    transmission_id, endpoint_id, sequence, message_type_id, is_conversation_error, is_end_of_dialog,
    message_id, enqueued_at, priority, body, trace, status
FROM dialoq_transmission WHERE transmission_id = ?1
