-- Every queue as SELECT ... FROM queue shows it: status 1 is ready, 0 received and kept, 3 a kept copy of what was sent
CREATE VIEW queue_messages AS
WITH every AS (
    SELECT
        1 AS status, queuing_order, endpoint_id, sequence, message_type_id, message_id, enqueued_at, body, trace
    FROM dialoq_queue_message
    UNION ALL
    SELECT status, queuing_order, endpoint_id, sequence, message_type_id, message_id, enqueued_at, body, trace
    FROM dialoq_retained_message
)
SELECT
    q.name AS queue_name, m.status, e.priority, m.queuing_order,
    lower(substr(hex(e.conversation_group_id), 1, 8) || '-' || substr(hex(e.conversation_group_id), 9, 4) || '-' || substr(hex(e.conversation_group_id), 13, 4)
        || '-' || substr(hex(e.conversation_group_id), 17, 4) || '-' || substr(hex(e.conversation_group_id), 21, 12)) AS conversation_group_id,
    lower(substr(hex(e.conversation_handle), 1, 8) || '-' || substr(hex(e.conversation_handle), 9, 4) || '-' || substr(hex(e.conversation_handle), 13, 4)
        || '-' || substr(hex(e.conversation_handle), 17, 4) || '-' || substr(hex(e.conversation_handle), 21, 12)) AS conversation_handle,
    m.sequence AS message_sequence_number, s.name AS service_name, e.service_id,
    c.name AS service_contract_name, e.service_contract_id, t.name AS message_type_name, m.message_type_id,
    CASE t.validation WHEN 'V' THEN 'X' WHEN 'S' THEN 'J' ELSE t.validation END AS validation,
    m.body AS message_body,
    lower(substr(hex(m.message_id), 1, 8) || '-' || substr(hex(m.message_id), 9, 4) || '-' || substr(hex(m.message_id), 13, 4)
        || '-' || substr(hex(m.message_id), 17, 4) || '-' || substr(hex(m.message_id), 21, 12)) AS message_id,
    datetime(m.enqueued_at / 1000000, 'unixepoch') || printf('.%06d', m.enqueued_at % 1000000) AS message_enqueue_time,
    m.trace
FROM every AS m
LEFT JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
LEFT JOIN dialoq_service AS s ON s.service_id = e.service_id
LEFT JOIN dialoq_service_queue AS q ON q.queue_id = s.queue_id
LEFT JOIN dialoq_service_contract AS c ON c.service_contract_id = e.service_contract_id
LEFT JOIN dialoq_message_type AS t ON t.message_type_id = m.message_type_id;
