-- Messages that a retry policy has taken out of their queue. is_conversation_open: whether the message can be redriven.
CREATE VIEW dialoq.dead_letters AS
SELECT
    d.queuing_order AS dead_letter_id, d.queue_name, d.service_name, d.far_service_name, d.service_contract_name,
    d.conversation_handle, d.conversation_id, d.conversation_group_id,
    CASE WHEN e.endpoint_id IS NULL THEN 0 ELSE 1 END AS is_conversation_open,
    m.sequence AS message_sequence_number, d.priority, t.name AS message_type_name,
    CASE t.validation WHEN N'V' THEN N'X' WHEN N'S' THEN N'J' ELSE t.validation END AS validation,
    m.message_id, m.enqueued_at AS message_enqueue_time, d.died_at, d.attempts, d.reason, m.body AS message_body, m.trace
FROM dialoq.dead_letter AS d
JOIN dialoq.queue_message AS m
    ON m.endpoint_id = -d.endpoint_id AND m.delivery_class = d.delivery_class AND m.queuing_order = d.queuing_order
LEFT JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = d.endpoint_id AND e.state NOT IN (N'DO', N'CD')
LEFT JOIN dialoq.message_type AS t ON t.message_type_id = m.message_type_id;
GO
