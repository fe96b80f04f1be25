-- Sides of conversations, the oldest first. A parameter that is NULL chooses nothing; the broker's own are left out.
-- Takes: ?1 conversation_handle, conversation_id or conversation_group_id, ?2 queue, ?3 service_name, ?4 state, ?5 begun before (microseconds of UTC), ?6 service_contract_name, ?7 at most so many, ?8 1: none that has ended
-- Gives: conversation_handle, conversation_id, conversation_group_id, is_initiator, state, service_name, queue_name, far_service, service_contract_name, priority, lifetime (microseconds of UTC), dialog_timer (microseconds of UTC), begun_at (microseconds of UTC), is_quarantined, retry_at (microseconds of UTC)
SELECT
    hex(e.conversation_handle) AS conversation_handle, hex(e.conversation_id) AS conversation_id,
    hex(e.conversation_group_id) AS conversation_group_id, e.is_initiator, e.state, s.name AS service_name,
    q.name AS queue_name, e.far_service, c.name AS service_contract_name, e.priority, e.lifetime, e.dialog_timer, e.begun_at,
    e.is_quarantined,
    e.retry_at
FROM dialoq_conversation_endpoint AS e
JOIN dialoq_service AS s ON s.service_id = e.service_id
JOIN dialoq_service_queue AS q ON q.queue_id = s.queue_id
LEFT JOIN dialoq_service_contract AS c ON c.service_contract_id = e.service_contract_id
WHERE e.is_system = 0
    AND (?1 IS NULL OR upper(replace(?1, '-', '')) IN (hex(e.conversation_handle), hex(e.conversation_id), hex(e.conversation_group_id)))
    AND (?2 IS NULL OR q.name = ?2 COLLATE NOCASE)
    AND (?3 IS NULL OR s.name = ?3)
    AND (?4 IS NULL OR e.state = ?4)
    AND (?5 IS NULL OR e.begun_at < ?5)
    AND (?6 IS NULL OR c.name = ?6)
    AND (?8 = 0 OR e.state NOT IN ('DO', 'CD'))
ORDER BY e.begun_at, e.endpoint_id
LIMIT ?7
