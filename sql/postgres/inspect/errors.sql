-- The bodies of the Error messages that conversations hold, waiting or kept.
-- Takes: $1 handles with commas between them
-- Gives: conversation_handle, body
SELECT conversation_handle::text AS conversation_handle, message_body AS body
FROM dialoq.queue_messages
WHERE conversation_handle = ANY (pg_catalog.string_to_array($1::text, ',')::uuid[]) AND message_type_id = 1
