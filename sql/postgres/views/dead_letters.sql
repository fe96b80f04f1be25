-- Messages that a retry policy has taken out of their queue. is_conversation_open: whether the message can be redriven.
CREATE VIEW dialoq.dead_letters AS
SELECT
    d.queuing_order AS dead_letter_id, d.queue_name, d.service_name, d.far_service_name, d.service_contract_name,
    d.conversation_handle, d.conversation_id, d.conversation_group_id,
    CASE WHEN e.endpoint_id IS NULL THEN 0 ELSE 1 END AS is_conversation_open,
    d.sequence AS message_sequence_number, d.priority, t.name AS message_type_name,
    CASE t.validation WHEN 'V' THEN 'X' WHEN 'S' THEN 'J' ELSE t.validation END AS validation,
    d.message_id, d.enqueued_at AS message_enqueue_time, d.died_at, d.attempts, d.reason, d.body AS message_body, d.trace
FROM dialoq.dead_letter AS d
LEFT JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = d.endpoint_id AND e.state NOT IN ('DO', 'CD')
LEFT JOIN dialoq.message_type AS t ON t.message_type_id = d.message_type_id;
