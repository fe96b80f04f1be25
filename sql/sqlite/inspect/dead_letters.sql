-- Dead letters, in the order in which their messages arrived. A parameter that is NULL chooses nothing. No lock is taken.
-- Takes: ?1 queue, ?2 service_name, ?3 message_type_name, ?4 conversation_handle, ?5 dead_letter_id, ?6 died before (microseconds of UTC), ?7 at most so many bytes of each body, ?8 at most so many, ?9 message_id
-- Gives: dead_letter_id, queue_name, service_name, far_service_name, service_contract_name, conversation_handle, conversation_id, conversation_group_id, is_conversation_open, sequence, priority, message_type_name, message_id, enqueued_at, died_at (microseconds of UTC), attempts, reason, body, body_bytes
SELECT
    d.queuing_order AS dead_letter_id, d.queue_name, d.service_name, d.far_service_name, d.service_contract_name,
    hex(d.conversation_handle) AS conversation_handle, hex(d.conversation_id) AS conversation_id,
    hex(d.conversation_group_id) AS conversation_group_id, e.endpoint_id IS NOT NULL AS is_conversation_open, d.sequence, d.priority,
    t.name AS message_type_name, hex(d.message_id) AS message_id, d.enqueued_at, d.died_at, d.attempts, d.reason,
    substr(d.body, 1, ?7) AS body, coalesce(length(d.body), 0) AS body_bytes
FROM dialoq_dead_letter AS d
LEFT JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = d.endpoint_id AND e.state NOT IN ('DO', 'CD')
LEFT JOIN dialoq_message_type AS t ON t.message_type_id = d.message_type_id
WHERE (?1 IS NULL OR d.queue_name = ?1 COLLATE NOCASE)
    AND (?2 IS NULL OR d.service_name = ?2)
    AND (?3 IS NULL OR t.name = ?3)
    AND (?4 IS NULL OR hex(d.conversation_handle) = upper(replace(?4, '-', '')))
    AND (?5 IS NULL OR d.queuing_order = ?5)
    AND (?6 IS NULL OR d.died_at < ?6)
    AND (?9 IS NULL OR hex(d.message_id) = upper(replace(?9, '-', '')))
ORDER BY d.queuing_order
LIMIT ?8
