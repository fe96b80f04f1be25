-- The bodies of the Error messages that conversations hold, waiting or kept.
-- Takes: ?1 handles with commas between them
-- Gives: conversation_handle, body
SELECT hex(e.conversation_handle) AS conversation_handle, m.body
FROM (
    SELECT endpoint_id, body FROM dialoq_queue_message WHERE message_type_id = 1
    UNION ALL
    SELECT endpoint_id, body FROM dialoq_retained_message WHERE message_type_id = 1
) AS m
JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
WHERE instr(upper(replace(?1, '-', '')), hex(e.conversation_handle)) > 0
