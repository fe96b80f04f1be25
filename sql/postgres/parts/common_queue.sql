-- The queue q of the service to which all messages t go, if it takes messages and the sender's queue keeps no copies (RETENTION).
CROSS JOIN LATERAL (
    SELECT FROM dialoq.service AS s JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    WHERE s.service_id = t.own_service_id AND NOT q.is_retention_enabled
    OFFSET 0
) AS o
CROSS JOIN LATERAL (
    SELECT q.queue_id FROM dialoq.service AS s JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    WHERE s.service_id = t.service_id AND q.is_enqueue_enabled
    OFFSET 0
) AS q
