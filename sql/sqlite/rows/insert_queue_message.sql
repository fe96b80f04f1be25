-- Writes a message that arrived in a queue.
-- Takes: ?1 queuing_order, ?2 endpoint_id, ?3 stored (the delivery class), ?4 sequence, ?5 message_type_id, ?6 message_id, ?7 enqueued_at, ?8 body, ?9 trace
-- Gives: nothing
INSERT INTO dialoq_queue_message (
    queuing_order, endpoint_id, stored, sequence, message_type_id, message_id, enqueued_at, body, trace
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
