-- Queues with messages that no caller has received for long.
-- Takes: ?1 only messages that arrived before this moment, in microseconds
-- Gives: subject (the queue), amount, since (when the oldest arrived), detail (the activation procedure, if activation is on)
SELECT
    q.name AS subject, count(*) AS amount, min(m.enqueued_at) AS since,
    CASE WHEN q.is_activation_enabled = 1 THEN q.activation_procedure END AS detail
FROM dialoq_queue_message AS m
JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
JOIN dialoq_service AS s ON s.service_id = e.service_id
JOIN dialoq_service_queue AS q ON q.queue_id = s.queue_id
WHERE m.enqueued_at < ?1 AND q.is_receive_enabled = 1 AND e.is_quarantined = 0
GROUP BY q.queue_id
ORDER BY since, subject
