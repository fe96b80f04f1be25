-- Conversation groups that poison handling set aside for good; one that pauses comes back by itself.
-- Takes: nothing
-- Gives: subject (the queue), amount (of groups), since (when the oldest conversation began), detail (NULL)
SELECT
    q.name AS subject, COUNT_BIG(DISTINCT e.conversation_group_id) AS amount,
    DATEDIFF_BIG(microsecond, '1970-01-01', MIN(e.begun_at)) AS since, CAST(NULL AS nvarchar(256)) AS detail
FROM dialoq.effective_endpoint AS e
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
JOIN dialoq.read_service_queues AS q ON q.queue_id = s.queue_id
WHERE e.is_quarantined = 1 AND e.retry_at IS NULL AND e.state NOT IN (N'DO', N'CD')
GROUP BY q.queue_id, q.name
ORDER BY amount DESC, subject
