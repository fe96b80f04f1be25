-- Messages in queues, those that RECEIVE gives first at the top. A parameter that is NULL chooses nothing. No lock is taken.
-- Takes: $1 queue, $2 conversation handles with commas between, $3 message_type_name, $4 message_id, $5 1 for kept ones too, of RETENTION, $6 at most so many bytes of each body, $7 at most so many, $8 sent before (microseconds of UTC), $9 service_name
-- Gives: queue_name, status, priority, queuing_order, conversation_group_id, conversation_handle, sequence, service_name, service_contract_name, message_type_name, message_id, enqueued_at (microseconds of UTC), body, body_bytes, is_quarantined, retry_at (microseconds of UTC)
SELECT
    m.queue_name, m.status::integer AS status, m.priority::integer AS priority, m.queuing_order,
    m.conversation_group_id::text AS conversation_group_id, m.conversation_handle::text AS conversation_handle,
    m.message_sequence_number AS sequence, m.service_name, m.service_contract_name, m.message_type_name,
    m.message_id::text AS message_id, (extract(epoch FROM m.message_enqueue_time) * 1000000.0)::bigint AS enqueued_at,
    pg_catalog.substr(m.message_body, 1, $6::integer) AS body,
    coalesce(pg_catalog.octet_length(m.message_body), 0) AS body_bytes, e.is_quarantined,
    (extract(epoch FROM e.retry_at) * 1000000.0)::bigint AS retry_at
FROM dialoq.queue_messages AS m
JOIN dialoq.effective_endpoint AS e ON e.conversation_handle = m.conversation_handle
WHERE ($1::text IS NULL OR pg_catalog.lower(m.queue_name COLLATE "C") = pg_catalog.lower($1 COLLATE "C"))
    AND ($2::text IS NULL OR m.conversation_handle = ANY (pg_catalog.string_to_array($2, ',')::uuid[]))
    AND ($3::text IS NULL OR m.message_type_name = $3)
    AND ($4::text IS NULL OR m.message_id = $4::uuid)
    AND (m.status = 1 OR $5::bigint = 1)
    AND ($8::bigint IS NULL OR m.message_enqueue_time < timestamptz 'epoch' + $8::bigint::float8 * interval '1 microsecond')
    AND ($9::text IS NULL OR m.service_name = $9)
WINDOW together AS (PARTITION BY m.conversation_group_id, m.status <> 1, e.is_quarantined)
-- Of the groups that of the highest level, then that of the oldest message; in a group one conversation after the other.
ORDER BY
    m.status <> 1, e.is_quarantined, -max(m.priority) OVER together, min(m.queuing_order) OVER together,
    -m.priority, m.conversation_handle, CASE m.message_type_id WHEN 3 THEN 0 WHEN 1 THEN 1 ELSE 2 END, m.queuing_order
LIMIT $7::bigint
