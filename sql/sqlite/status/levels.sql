-- What waits in every queue, per level. Messages are counted per conversation first, so that a deep queue is one scan.
-- Takes: nothing
-- Gives: queue_id, priority, messages, conversation_groups, oldest (microseconds of UTC), is_quarantined, retry_at (microseconds of UTC: when the first of these groups ends its pause, NULL if it does not pause)
SELECT
    s.queue_id, e.priority, sum(w.messages) AS messages,
    count(DISTINCT e.conversation_group_id) AS conversation_groups,
    min(w.oldest) AS oldest, e.is_quarantined,
    min(e.retry_at) AS retry_at
FROM (
    SELECT endpoint_id, count(*) AS messages, min(enqueued_at) AS oldest
    FROM dialoq_queue_message
    GROUP BY endpoint_id
) AS w
JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = w.endpoint_id
JOIN dialoq_service AS s ON s.service_id = e.service_id
GROUP BY s.queue_id, e.priority, e.is_quarantined, CASE WHEN e.retry_at IS NULL THEN 1 ELSE 0 END
ORDER BY s.queue_id, e.priority DESC, e.is_quarantined, CASE WHEN e.retry_at IS NULL THEN 1 ELSE 0 END
