-- Finds the endpoints of retained messages that do not exist; goes from one endpoint to the next by key.
-- Takes: nothing
-- Gives: endpoint_id
WITH RECURSIVE kept (endpoint_id) AS (
    SELECT min(endpoint_id) FROM dialoq_retained_message
    UNION ALL
    SELECT (SELECT min(r.endpoint_id) FROM dialoq_retained_message AS r WHERE r.endpoint_id > kept.endpoint_id)
    FROM kept WHERE kept.endpoint_id IS NOT NULL
)

SELECT kept.endpoint_id
FROM kept
WHERE
    kept.endpoint_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM dialoq_conversation_endpoint AS e WHERE e.endpoint_id = kept.endpoint_id)
