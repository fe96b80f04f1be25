-- Conversations whose other side has ended or that broke, whose messages are all received, and that are not ended on this side.
-- Takes: ?1 only conversations begun before this moment, in microseconds
-- Gives: subject (the service), amount, since (when the oldest began), detail (the queue)
SELECT s.name AS subject, count(*) AS amount, min(e.begun_at) AS since, q.name AS detail
FROM dialoq_conversation_endpoint AS e
JOIN dialoq_service AS s ON s.service_id = e.service_id
JOIN dialoq_service_queue AS q ON q.queue_id = s.queue_id
WHERE e.state IN ('DI', 'ER') AND e.is_system = 0 AND e.begun_at < ?1
    AND e.endpoint_id NOT IN (SELECT endpoint_id FROM dialoq_queue_message)
GROUP BY s.service_id
ORDER BY amount DESC, subject
