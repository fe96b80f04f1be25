-- Writes a message kept under RETENTION.
-- Takes: ?1 endpoint_id, ?2 queuing_order, ?3 status, ?4 stored (the delivery class), ?5 sequence, ?6 message_type_id, ?7 message_id, ?8 enqueued_at, ?9 body, ?10 trace
-- Gives: nothing
INSERT INTO dialoq_retained_message (
    endpoint_id, queuing_order, status, stored, sequence, message_type_id, message_id, enqueued_at, body,
    trace
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
