-- Sides of conversations, the oldest first. A parameter that is NULL chooses nothing; the broker's own are left out.
-- Takes: $1 conversation_handle, conversation_id or conversation_group_id, $2 queue, $3 service_name, $4 state, $5 begun before (microseconds of UTC), $6 service_contract_name, $7 at most so many, $8 1: none that has ended
-- Gives: conversation_handle, conversation_id, conversation_group_id, is_initiator, state, service_name, queue_name, far_service, service_contract_name, priority, lifetime (microseconds of UTC), dialog_timer (microseconds of UTC), begun_at (microseconds of UTC), is_quarantined, retry_at (microseconds of UTC)
SELECT
    e.conversation_handle::text AS conversation_handle, e.conversation_id::text AS conversation_id,
    e.conversation_group_id::text AS conversation_group_id, e.is_initiator, e.state, s.name AS service_name,
    q.name AS queue_name, e.far_service, c.name AS service_contract_name, e.priority::integer AS priority,
    (extract(epoch FROM e.lifetime) * 1000000.0)::bigint AS lifetime,
    (extract(epoch FROM e.dialog_timer) * 1000000.0)::bigint AS dialog_timer,
    (extract(epoch FROM e.begun_at) * 1000000.0)::bigint AS begun_at, e.is_quarantined,
    (extract(epoch FROM e.retry_at) * 1000000.0)::bigint AS retry_at
FROM dialoq.effective_endpoint AS e
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
JOIN dialoq.read_service_queues AS q ON q.queue_id = s.queue_id
LEFT JOIN dialoq.read_service_contracts AS c ON c.service_contract_id = e.service_contract_id
WHERE NOT e.is_system
    AND ($1::text IS NULL
        OR e.conversation_handle = $1::uuid OR e.conversation_id = $1::uuid OR e.conversation_group_id = $1::uuid)
    AND ($2::text IS NULL OR pg_catalog.lower(q.name COLLATE "C") = pg_catalog.lower($2 COLLATE "C"))
    AND ($3::text IS NULL OR s.name = $3)
    AND ($4::text IS NULL OR e.state = $4)
    AND ($5::bigint IS NULL OR e.begun_at < timestamptz 'epoch' + $5::bigint::float8 * interval '1 microsecond')
    AND ($6::text IS NULL OR c.name = $6)
    AND ($8::bigint = 0 OR e.state NOT IN ('DO', 'CD'))
ORDER BY e.begun_at, e.endpoint_id
LIMIT $7::bigint
