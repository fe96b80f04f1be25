-- What waits to be delivered, and why.
-- Takes: nothing
-- Gives: to_service_name, transmission_status, messages, oldest (microseconds of UTC)
SELECT
    e.far_service AS to_service_name, t.status AS transmission_status,
    pg_catalog.count(*) AS messages, (extract(epoch FROM pg_catalog.min(t.enqueued_at)) * 1000000.0)::bigint AS oldest
FROM dialoq.effective_transmission AS t
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = t.endpoint_id
GROUP BY e.far_service, t.status
ORDER BY e.far_service, t.status
