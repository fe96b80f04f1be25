-- Messages in queues, those that RECEIVE gives first at the top. A parameter that is NULL chooses nothing. No lock is taken.
-- Takes: ?1 queue, ?2 conversation handles with commas between, ?3 message_type_name, ?4 message_id, ?5 1 for kept ones too, of RETENTION, ?6 at most so many bytes of each body, ?7 at most so many, ?8 sent before (microseconds of UTC), ?9 service_name
-- Gives: queue_name, status, priority, queuing_order, conversation_group_id, conversation_handle, sequence, service_name, service_contract_name, message_type_name, message_id, enqueued_at (microseconds of UTC), body, body_bytes, is_quarantined, retry_at (microseconds of UTC)
WITH RECURSIVE place (number) AS (
    -- Each handle takes 37 characters.
    SELECT 0 WHERE ?2 IS NOT NULL UNION ALL SELECT p.number + 37 FROM place AS p WHERE p.number + 37 < length(?2)
), asked (handle) AS MATERIALIZED (
    SELECT upper(replace(substr(?2, p.number + 1, 36), '-', '')) FROM place AS p
), ranked AS MATERIALIZED (
    -- RECEIVE takes the group of the highest level, of equals that of the oldest message.
    SELECT f.conversation_group_id, f.is_quarantined, max(f.priority) AS level, min(g.queuing_order) AS oldest
    FROM dialoq_queue_message AS g
    JOIN dialoq_conversation_endpoint AS f ON f.endpoint_id = g.endpoint_id
    WHERE ?2 IS NULL AND ?4 IS NULL
    GROUP BY f.conversation_group_id, f.is_quarantined
)
SELECT
    q.name AS queue_name, m.status, e.priority, m.queuing_order, hex(e.conversation_group_id) AS conversation_group_id,
    hex(e.conversation_handle) AS conversation_handle, m.sequence, s.name AS service_name, c.name AS service_contract_name,
    t.name AS message_type_name, hex(m.message_id) AS message_id, m.enqueued_at, substr(m.body, 1, ?6) AS body,
    coalesce(length(m.body), 0) AS body_bytes, e.is_quarantined,
    e.retry_at
FROM (
    SELECT 1 AS status, queuing_order, endpoint_id, stored, sequence, message_type_id, message_id, enqueued_at, body
    FROM dialoq_queue_message
    UNION ALL
    SELECT status, queuing_order, endpoint_id, stored, sequence, message_type_id, message_id, enqueued_at, body
    FROM dialoq_retained_message WHERE ?5 = 1
) AS m
JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
LEFT JOIN ranked AS r ON r.conversation_group_id = e.conversation_group_id AND r.is_quarantined = e.is_quarantined
JOIN dialoq_service AS s ON s.service_id = e.service_id
JOIN dialoq_service_queue AS q ON q.queue_id = s.queue_id
LEFT JOIN dialoq_service_contract AS c ON c.service_contract_id = e.service_contract_id
LEFT JOIN dialoq_message_type AS t ON t.message_type_id = m.message_type_id
WHERE (?1 IS NULL OR q.name = ?1 COLLATE NOCASE)
    AND (?2 IS NULL OR hex(e.conversation_handle) IN (SELECT a.handle FROM asked AS a))
    AND (?3 IS NULL OR t.name = ?3)
    AND (?4 IS NULL OR hex(m.message_id) = upper(replace(?4, '-', '')))
    AND (?8 IS NULL OR m.enqueued_at < ?8)
    AND (?9 IS NULL OR s.name = ?9)
ORDER BY
    m.status <> 1, e.is_quarantined, -r.level, r.oldest, -e.priority, e.conversation_handle, -m.stored, m.queuing_order
LIMIT ?7
