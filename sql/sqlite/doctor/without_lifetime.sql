-- Conversations without LIFETIME that both sides hold open.
-- Takes: ?1 only conversations begun before this moment, in microseconds
-- Gives: subject (the service that began them), amount, since (when the oldest began), detail (the service addressed)
SELECT s.name AS subject, count(*) AS amount, min(e.begun_at) AS since, e.far_service AS detail
FROM dialoq_conversation_endpoint AS e
JOIN dialoq_service AS s ON s.service_id = e.service_id
WHERE e.state IN ('SO', 'CO') AND e.is_initiator = 1 AND e.is_system = 0 AND e.begun_at < ?1
    -- Without LIFETIME a conversation lives for 2147483647 seconds.
    AND e.lifetime - e.begun_at >= 2147483647000000
GROUP BY s.service_id, e.far_service
ORDER BY amount DESC, subject, detail
