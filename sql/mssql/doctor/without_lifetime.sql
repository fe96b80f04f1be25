-- Conversations without LIFETIME that both sides hold open.
-- Takes: @P1 only conversations begun before this moment, in microseconds
-- Gives: subject (the service that began them), amount, since (when the oldest began), detail (the service addressed)
SELECT
    s.name AS subject, COUNT_BIG(*) AS amount, DATEDIFF_BIG(microsecond, '1970-01-01', MIN(e.begun_at)) AS since,
    e.far_service AS detail
FROM dialoq.effective_endpoint AS e
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
WHERE e.state IN (N'SO', N'CO') AND e.is_initiator = 1 AND e.is_system = 0
    AND e.begun_at < DATEADD(microsecond, @P1 % 1000000,
        DATEADD(second, CAST(@P1 / 1000000 % 86400 AS int),
            DATEADD(day, CAST(@P1 / 86400000000 AS int), CAST('1970-01-01' AS datetime2(6)))))
    -- Without LIFETIME a conversation lives for 2147483647 seconds.
    AND e.lifetime >= DATEADD(second, 2147483647, e.begun_at)
GROUP BY s.service_id, s.name, e.far_service
ORDER BY amount DESC, subject, detail
