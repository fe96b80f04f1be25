-- What waits in every queue, per level. Messages are counted per conversation first, so that a deep queue is one scan.
-- Takes: nothing
-- Gives: queue_id, priority, messages, conversation_groups, oldest (microseconds of UTC), is_quarantined, retry_at (microseconds of UTC: when the first of these groups ends its pause, NULL if it does not pause)
SELECT
    s.queue_id, e.priority, pg_catalog.sum(w.messages)::bigint AS messages,
    pg_catalog.count(DISTINCT e.conversation_group_id) AS conversation_groups,
    (extract(epoch FROM pg_catalog.min(w.oldest)) * 1000000.0)::bigint AS oldest, e.is_quarantined,
    (extract(epoch FROM pg_catalog.min(e.retry_at)) * 1000000.0)::bigint AS retry_at
FROM (
    SELECT m.endpoint_id, pg_catalog.count(*) AS messages, pg_catalog.min(m.enqueued_at) AS oldest
    FROM dialoq.effective_message AS m
    GROUP BY m.endpoint_id
) AS w
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = w.endpoint_id
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
GROUP BY s.queue_id, e.priority, e.is_quarantined, CASE WHEN e.retry_at IS NULL THEN 1 ELSE 0 END
ORDER BY s.queue_id, e.priority DESC, e.is_quarantined, CASE WHEN e.retry_at IS NULL THEN 1 ELSE 0 END
