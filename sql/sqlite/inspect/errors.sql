-- The bodies of the Error messages that conversations hold, waiting or kept.
-- Takes: ?1 handles with commas between them
-- Gives: conversation_handle, body
WITH RECURSIVE place (number) AS (
    -- Each id takes 37 characters.
    SELECT 0 UNION ALL SELECT p.number + 37 FROM place AS p WHERE p.number + 37 < length(?1)
), asked (id) AS MATERIALIZED (
    SELECT upper(replace(substr(?1, p.number + 1, 36), '-', '')) FROM place AS p
)
SELECT hex(e.conversation_handle) AS conversation_handle, m.body
FROM (
    SELECT endpoint_id, body FROM dialoq_queue_message WHERE message_type_id = 1
    UNION ALL
    SELECT endpoint_id, body FROM dialoq_retained_message WHERE message_type_id = 1
) AS m
JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
WHERE hex(e.conversation_handle) IN (SELECT a.id FROM asked AS a)
