-- What waits to be delivered, and why.
-- Takes: nothing
-- Gives: to_service_name, transmission_status, messages, oldest (microseconds of UTC)
SELECT
    e.far_service AS to_service_name, t.status AS transmission_status,
    count(*) AS messages, min(t.enqueued_at) AS oldest
FROM dialoq_transmission AS t
JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = t.endpoint_id
GROUP BY e.far_service, t.status
ORDER BY e.far_service, t.status
