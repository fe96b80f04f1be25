-- Conversation groups that poison handling set aside for good; one that pauses comes back by itself.
-- Takes: nothing
-- Gives: subject (the queue), amount (of groups), since (when the oldest conversation began), detail (NULL)
SELECT q.name AS subject, count(DISTINCT e.conversation_group_id) AS amount, min(e.begun_at) AS since, NULL AS detail
FROM dialoq_conversation_endpoint AS e
JOIN dialoq_service AS s ON s.service_id = e.service_id
JOIN dialoq_service_queue AS q ON q.queue_id = s.queue_id
WHERE e.is_quarantined = 1 AND e.retry_at IS NULL AND e.state NOT IN ('DO', 'CD')
GROUP BY q.queue_id
ORDER BY amount DESC, subject
