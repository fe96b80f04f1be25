-- What waits to be delivered, and why.
-- Takes: nothing
-- Gives: to_service_name, transmission_status, messages, oldest (microseconds of UTC)
SELECT
    e.far_service AS to_service_name, t.status AS transmission_status,
    COUNT_BIG(*) AS messages, DATEDIFF_BIG(microsecond, '1970-01-01', MIN(t.enqueued_at)) AS oldest
FROM dialoq.effective_transmission AS t
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = t.endpoint_id
GROUP BY e.far_service, t.status
ORDER BY e.far_service, t.status
