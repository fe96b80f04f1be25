-- Messages in the transmission queue, by where they go and why they wait.
-- Takes: @P1 only messages sent before this moment, in microseconds
-- Gives: subject (the service addressed), amount, since (when the oldest was sent), detail (the transmission status)
SELECT
    e.far_service AS subject, COUNT_BIG(*) AS amount, DATEDIFF_BIG(microsecond, '1970-01-01', MIN(t.enqueued_at)) AS since,
    t.status AS detail
FROM dialoq.effective_transmission AS t
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = t.endpoint_id
WHERE t.enqueued_at < DATEADD(microsecond, @P1 % 1000000,
        DATEADD(second, CAST(@P1 / 1000000 % 86400 AS int),
            DATEADD(day, CAST(@P1 / 86400000000 AS int), CAST('1970-01-01' AS datetime2(6)))))
GROUP BY e.far_service, t.status
ORDER BY amount DESC, subject, detail
