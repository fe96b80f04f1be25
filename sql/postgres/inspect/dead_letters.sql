-- Dead letters, in the order in which their messages arrived. A parameter that is NULL chooses nothing. No lock is taken.
-- Takes: $1 queue, $2 service_name, $3 message_type_name, $4 conversation_handle, $5 dead_letter_id, $6 died before (microseconds of UTC), $7 at most so many bytes of each body, $8 at most so many, $9 message_id
-- Gives: dead_letter_id, queue_name, service_name, far_service_name, service_contract_name, conversation_handle, conversation_id, conversation_group_id, is_conversation_open, sequence, priority, message_type_name, message_id, enqueued_at, died_at (microseconds of UTC), attempts, reason, body, body_bytes
SELECT
    d.dead_letter_id, d.queue_name, d.service_name, d.far_service_name, d.service_contract_name,
    d.conversation_handle::text AS conversation_handle, d.conversation_id::text AS conversation_id,
    d.conversation_group_id::text AS conversation_group_id, d.is_conversation_open, d.message_sequence_number AS sequence,
    d.priority::integer AS priority, d.message_type_name, d.message_id::text AS message_id,
    (extract(epoch FROM d.message_enqueue_time) * 1000000.0)::bigint AS enqueued_at,
    (extract(epoch FROM d.died_at) * 1000000.0)::bigint AS died_at, d.attempts, d.reason,
    pg_catalog.substr(d.message_body, 1, $7::integer) AS body, coalesce(pg_catalog.octet_length(d.message_body), 0) AS body_bytes
FROM dialoq.dead_letters AS d
WHERE ($1::text IS NULL OR pg_catalog.lower(d.queue_name COLLATE "C") = pg_catalog.lower($1 COLLATE "C"))
    AND ($2::text IS NULL OR d.service_name = $2)
    AND ($3::text IS NULL OR d.message_type_name = $3)
    AND ($4::text IS NULL OR d.conversation_handle = $4::uuid)
    AND ($5::bigint IS NULL OR d.dead_letter_id = $5)
    AND ($6::bigint IS NULL OR d.died_at < timestamptz 'epoch' + $6::bigint::float8 * interval '1 microsecond')
    AND ($9::text IS NULL OR d.message_id = $9::uuid)
ORDER BY d.dead_letter_id
LIMIT $8::bigint
