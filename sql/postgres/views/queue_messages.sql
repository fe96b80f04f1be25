-- Every queue as SELECT ... FROM queue shows it: status 1 is ready, 0 received and kept, 3 a kept copy of what was sent.
-- Its condition is that of effective_message, written so that the planner can find a conversation by its handle.
CREATE VIEW dialoq.queue_messages AS
WITH every AS (
    SELECT
        1::smallint AS status, queuing_order, endpoint_id, sequence, message_type_id, message_id, enqueued_at, body, trace
    FROM dialoq.queue_message
    UNION ALL
    SELECT status, queuing_order, endpoint_id, sequence, message_type_id, message_id, enqueued_at, body, trace
    FROM dialoq.retained_message
)
SELECT
    q.name AS queue_name, m.status, e.priority, m.queuing_order, e.conversation_group_id, e.conversation_handle,
    m.sequence AS message_sequence_number, s.name AS service_name, e.service_id,
    c.name AS service_contract_name, e.service_contract_id, t.name AS message_type_name, m.message_type_id,
    CASE t.validation WHEN 'V' THEN 'X' WHEN 'S' THEN 'J' ELSE t.validation END AS validation,
    m.body AS message_body, m.message_id, m.enqueued_at AS message_enqueue_time, m.trace
FROM every AS m
LEFT JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
LEFT JOIN dialoq.service AS s ON s.service_id = e.service_id
LEFT JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
LEFT JOIN dialoq.message_type AS t ON t.message_type_id = m.message_type_id
WHERE m.status <> 1 OR (e.state NOT IN ('DO', 'CD') AND NOT e.is_system);
