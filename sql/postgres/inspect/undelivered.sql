-- Messages in the transmission queue, in order. A parameter that is NULL chooses nothing.
-- Takes: $1 conversation_handle, $2 message_id, $3 at most so many bytes of each body, $4 at most so many
-- Gives: conversation_handle, from_service, to_service, service_contract_name, priority, sequence, message_type_name, message_id, is_conversation_error, is_end_of_dialog, enqueued_at (microseconds of UTC), body, body_bytes, transmission_status
SELECT
    e.conversation_handle::text AS conversation_handle, s.name AS from_service, e.far_service AS to_service,
    c.name AS service_contract_name, t.priority::integer AS priority, t.sequence, m.name AS message_type_name,
    t.message_id::text AS message_id, t.is_conversation_error, t.is_end_of_dialog,
    (extract(epoch FROM t.enqueued_at) * 1000000.0)::bigint AS enqueued_at,
    pg_catalog.substr(t.body, 1, $3::integer) AS body, coalesce(pg_catalog.octet_length(t.body), 0) AS body_bytes,
    t.status AS transmission_status
FROM dialoq.effective_transmission AS t
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = t.endpoint_id
LEFT JOIN dialoq.read_services AS s ON s.service_id = e.service_id
LEFT JOIN dialoq.read_service_contracts AS c ON c.service_contract_id = e.service_contract_id
LEFT JOIN dialoq.read_message_types AS m ON m.message_type_id = t.message_type_id
WHERE ($1::text IS NULL OR e.conversation_handle = $1::uuid) AND ($2::text IS NULL OR t.message_id = $2::uuid)
ORDER BY t.transmission_id
LIMIT $4::bigint
