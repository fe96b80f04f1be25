-- Messages that a retry policy has taken out of their queue. is_conversation_open: whether the message can be redriven
CREATE VIEW dead_letters AS
SELECT
    d.queuing_order AS dead_letter_id, d.queue_name, d.service_name, d.far_service_name, d.service_contract_name,
    lower(substr(hex(d.conversation_handle), 1, 8) || '-' || substr(hex(d.conversation_handle), 9, 4) || '-' || substr(hex(d.conversation_handle), 13, 4)
        || '-' || substr(hex(d.conversation_handle), 17, 4) || '-' || substr(hex(d.conversation_handle), 21, 12)) AS conversation_handle,
    lower(substr(hex(d.conversation_id), 1, 8) || '-' || substr(hex(d.conversation_id), 9, 4) || '-' || substr(hex(d.conversation_id), 13, 4)
        || '-' || substr(hex(d.conversation_id), 17, 4) || '-' || substr(hex(d.conversation_id), 21, 12)) AS conversation_id,
    lower(substr(hex(d.conversation_group_id), 1, 8) || '-' || substr(hex(d.conversation_group_id), 9, 4) || '-' || substr(hex(d.conversation_group_id), 13, 4)
        || '-' || substr(hex(d.conversation_group_id), 17, 4) || '-' || substr(hex(d.conversation_group_id), 21, 12)) AS conversation_group_id,
    e.endpoint_id IS NOT NULL AS is_conversation_open,
    d.sequence AS message_sequence_number, d.priority, t.name AS message_type_name,
    CASE t.validation WHEN 'V' THEN 'X' WHEN 'S' THEN 'J' ELSE t.validation END AS validation,
    lower(substr(hex(d.message_id), 1, 8) || '-' || substr(hex(d.message_id), 9, 4) || '-' || substr(hex(d.message_id), 13, 4)
        || '-' || substr(hex(d.message_id), 17, 4) || '-' || substr(hex(d.message_id), 21, 12)) AS message_id,
    datetime(d.enqueued_at / 1000000, 'unixepoch') || printf('.%06d', d.enqueued_at % 1000000) AS message_enqueue_time,
    datetime(d.died_at / 1000000, 'unixepoch') || printf('.%06d', d.died_at % 1000000) AS died_at,
    d.attempts, d.reason, d.body AS message_body, d.trace
FROM dialoq_dead_letter AS d
LEFT JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = d.endpoint_id AND e.state NOT IN ('DO', 'CD')
LEFT JOIN dialoq_message_type AS t ON t.message_type_id = d.message_type_id;
