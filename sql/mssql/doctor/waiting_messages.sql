-- Queues with messages that no caller has received for long.
-- Takes: @P1 only messages that arrived before this moment, in microseconds
-- Gives: subject (the queue), amount, since (when the oldest arrived), detail (the activation procedure, if activation is on)
SELECT
    q.name AS subject, COUNT_BIG(*) AS amount, DATEDIFF_BIG(microsecond, '1970-01-01', MIN(m.enqueued_at)) AS since,
    CASE WHEN q.is_activation_enabled = 1 THEN q.activation_procedure END AS detail
FROM dialoq.effective_message AS m
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = m.endpoint_id
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
JOIN dialoq.read_service_queues AS q ON q.queue_id = s.queue_id
WHERE m.enqueued_at < DATEADD(microsecond, @P1 % 1000000,
        DATEADD(second, CAST(@P1 / 1000000 % 86400 AS int),
            DATEADD(day, CAST(@P1 / 86400000000 AS int), CAST('1970-01-01' AS datetime2(6)))))
    AND q.is_receive_enabled = 1 AND e.is_quarantined = 0
GROUP BY q.queue_id, q.name, q.is_activation_enabled, q.activation_procedure
ORDER BY since, subject
