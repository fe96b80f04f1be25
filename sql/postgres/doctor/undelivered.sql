-- Messages in the transmission queue, by where they go and why they wait.
-- Takes: $1 only messages sent before this moment, in microseconds
-- Gives: subject (the service addressed), amount, since (when the oldest was sent), detail (the transmission status)
SELECT
    e.far_service AS subject, pg_catalog.count(*) AS amount, (extract(epoch FROM pg_catalog.min(t.enqueued_at)) * 1000000.0)::bigint AS since,
    t.status AS detail
FROM dialoq.effective_transmission AS t
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = t.endpoint_id
WHERE t.enqueued_at < timestamptz 'epoch' + $1::bigint::float8 * interval '1 microsecond'
GROUP BY e.far_service, t.status
ORDER BY amount DESC, subject, detail
