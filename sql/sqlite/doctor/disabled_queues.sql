-- Queues that give nothing out.
-- Takes: nothing
-- Gives: subject (the queue), amount (messages in it and on the way to it), since (when the oldest was sent), detail (NULL)
SELECT q.name AS subject, count(m.enqueued_at) AS amount, min(m.enqueued_at) AS since, NULL AS detail
FROM dialoq_service_queue AS q
LEFT JOIN dialoq_service AS s ON s.queue_id = q.queue_id
LEFT JOIN (
    SELECT e.service_id, m.enqueued_at
    FROM dialoq_queue_message AS m
    JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
    UNION ALL
    SELECT far.service_id, t.enqueued_at
    FROM dialoq_transmission AS t
    JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = t.endpoint_id
    JOIN dialoq_service AS far ON far.name = e.far_service
) AS m ON m.service_id = s.service_id
WHERE q.is_receive_enabled = 0
GROUP BY q.queue_id
ORDER BY amount DESC, subject
