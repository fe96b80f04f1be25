-- Conversations whose other side has ended or that broke, whose messages are all received, and that this side has not ended.
-- Takes: $1 only conversations begun before this moment, in microseconds
-- Gives: subject (the service), amount, since (when the oldest began), detail (the queue)
SELECT s.name AS subject, pg_catalog.count(*) AS amount, (extract(epoch FROM pg_catalog.min(e.begun_at)) * 1000000.0)::bigint AS since, q.name AS detail
FROM dialoq.effective_endpoint AS e
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
JOIN dialoq.read_service_queues AS q ON q.queue_id = s.queue_id
WHERE e.state IN ('DI', 'ER') AND NOT e.is_system
    AND e.begun_at < timestamptz 'epoch' + $1::bigint::float8 * interval '1 microsecond'
    AND NOT EXISTS (SELECT FROM dialoq.effective_message AS m WHERE m.endpoint_id = e.endpoint_id)
GROUP BY s.service_id, s.name, q.name
ORDER BY amount DESC, subject
