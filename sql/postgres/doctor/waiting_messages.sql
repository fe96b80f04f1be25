-- Queues whose messages have waited for long.
-- Takes: $1 only messages that arrived before this moment, in microseconds
-- Gives: subject (the queue), amount, since (when the oldest arrived), detail (the activation procedure, if activation is on)
SELECT
    q.name AS subject, pg_catalog.count(*) AS amount, (extract(epoch FROM pg_catalog.min(m.enqueued_at)) * 1000000.0)::bigint AS since,
    CASE WHEN q.is_activation_enabled THEN q.activation_procedure END AS detail
FROM dialoq.effective_message AS m
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = m.endpoint_id
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
JOIN dialoq.read_service_queues AS q ON q.queue_id = s.queue_id
WHERE m.enqueued_at < timestamptz 'epoch' + $1::bigint::float8 * interval '1 microsecond'
    AND q.is_receive_enabled AND NOT e.is_quarantined
GROUP BY q.queue_id, q.name, q.is_activation_enabled, q.activation_procedure
ORDER BY since, subject
