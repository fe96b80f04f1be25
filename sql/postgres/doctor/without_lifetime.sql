-- Conversations without LIFETIME that both sides hold open.
-- Takes: $1 only conversations begun before this moment, in microseconds
-- Gives: subject (the service that began them), amount, since (when the oldest began), detail (the service addressed)
SELECT
    s.name AS subject, pg_catalog.count(*) AS amount, (extract(epoch FROM pg_catalog.min(e.begun_at)) * 1000000.0)::bigint AS since,
    e.far_service AS detail
FROM dialoq.effective_endpoint AS e
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
WHERE e.state IN ('SO', 'CO') AND e.is_initiator AND NOT e.is_system
    AND e.begun_at < timestamptz 'epoch' + $1::bigint::float8 * interval '1 microsecond'
    -- Without LIFETIME a conversation lives for 2147483647 seconds.
    AND e.lifetime - e.begun_at >= interval '2147483647 seconds'
GROUP BY s.service_id, s.name, e.far_service
ORDER BY amount DESC, subject, detail
