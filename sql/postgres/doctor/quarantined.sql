-- Conversation groups that poison handling set aside for good; one that pauses comes back by itself.
-- Takes: nothing
-- Gives: subject (the queue), amount (of groups), since (when the oldest conversation began), detail (NULL)
SELECT
    q.name AS subject, pg_catalog.count(DISTINCT e.conversation_group_id) AS amount,
    (extract(epoch FROM pg_catalog.min(e.begun_at)) * 1000000.0)::bigint AS since, NULL::text AS detail
FROM dialoq.effective_endpoint AS e
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
JOIN dialoq.read_service_queues AS q ON q.queue_id = s.queue_id
WHERE e.is_quarantined AND e.retry_at IS NULL AND e.state NOT IN ('DO', 'CD')
GROUP BY q.queue_id, q.name
ORDER BY amount DESC, subject
