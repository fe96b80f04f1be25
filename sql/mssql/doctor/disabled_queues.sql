-- Queues that give nothing out.
-- Takes: nothing
-- Gives: subject (the queue), amount (messages in it and on the way to it), since (when the oldest was sent), detail (NULL)
SELECT q.name AS subject, COUNT_BIG(m.enqueued_at) AS amount, DATEDIFF_BIG(microsecond, '1970-01-01', MIN(m.enqueued_at)) AS since, CAST(NULL AS nvarchar(256)) AS detail
FROM dialoq.read_service_queues AS q
LEFT JOIN dialoq.read_services AS s ON s.queue_id = q.queue_id
LEFT JOIN (
    SELECT e.service_id, m.enqueued_at
    FROM dialoq.effective_message AS m
    JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = m.endpoint_id
    UNION ALL
    SELECT far.service_id, t.enqueued_at
    FROM dialoq.effective_transmission AS t
    JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = t.endpoint_id
    JOIN dialoq.read_services AS far ON far.name = e.far_service AND DATALENGTH(far.name) = DATALENGTH(e.far_service)
) AS m ON m.service_id = s.service_id
WHERE q.is_receive_enabled = 0
GROUP BY q.queue_id, q.name
ORDER BY amount DESC, subject
