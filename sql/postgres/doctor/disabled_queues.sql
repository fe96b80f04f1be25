-- Queues that give nothing out.
-- Takes: nothing
-- Gives: subject (the queue), amount (messages in it and on the way to it), since (when the oldest was sent), detail (NULL)
SELECT q.name AS subject, pg_catalog.count(m.enqueued_at) AS amount, (extract(epoch FROM pg_catalog.min(m.enqueued_at)) * 1000000.0)::bigint AS since, NULL::text AS detail
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
    JOIN dialoq.read_services AS far ON far.name = e.far_service
) AS m ON m.service_id = s.service_id
WHERE NOT q.is_receive_enabled
GROUP BY q.queue_id, q.name
ORDER BY amount DESC, subject
