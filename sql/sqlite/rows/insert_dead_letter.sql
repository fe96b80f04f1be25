-- Copies a message to the dead letters; the caller deletes it from its queue.
-- Takes: ?1 queuing_order, ?2 endpoint_id, ?3 queue, ?4 service, ?5 far service, ?6 contract, ?7 conversation_handle, ?8 conversation_id,
--     ?9 conversation_group_id, ?10 priority, ?11 attempts, ?12 died_at, ?13 reason
-- Gives: nothing
INSERT INTO dialoq_dead_letter (
    queuing_order, endpoint_id, delivery_class, sequence, queue_name, service_name, far_service_name, service_contract_name,
    conversation_handle, conversation_id, conversation_group_id, priority, attempts, died_at, reason,
    message_type_id, message_id, enqueued_at, body, trace
)
SELECT queuing_order, endpoint_id, stored, sequence, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,
    message_type_id, message_id, enqueued_at, body, trace
FROM dialoq_queue_message WHERE queuing_order = ?1 AND endpoint_id = ?2
