-- Conversations whose other side has ended or that broke, whose messages are all received, and that are not ended on this side.
-- Takes: @P1 only conversations begun before this moment, in microseconds
-- Gives: subject (the service), amount, since (when the oldest began), detail (the queue)
SELECT s.name AS subject, COUNT_BIG(*) AS amount, DATEDIFF_BIG(microsecond, '1970-01-01', MIN(e.begun_at)) AS since, q.name AS detail
FROM dialoq.effective_endpoint AS e
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
JOIN dialoq.read_service_queues AS q ON q.queue_id = s.queue_id
WHERE e.state IN (N'DI', N'ER') AND e.is_system = 0
    AND e.begun_at < DATEADD(microsecond, @P1 % 1000000,
        DATEADD(second, CAST(@P1 / 1000000 % 86400 AS int),
            DATEADD(day, CAST(@P1 / 86400000000 AS int), CAST('1970-01-01' AS datetime2(6)))))
    AND NOT EXISTS (SELECT 1 FROM dialoq.effective_message AS m WHERE m.endpoint_id = e.endpoint_id)
GROUP BY s.service_id, s.name, q.name
ORDER BY amount DESC, subject
