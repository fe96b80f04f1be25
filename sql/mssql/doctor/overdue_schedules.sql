-- Work schedules that should have fired and have not.
-- Takes: @P1 only times before this moment, in microseconds
-- Gives: subject (the work schedule), amount (1), since (when it should have fired), detail (the work queue)
SELECT
    s.name AS subject, CAST(1 AS bigint) AS amount, DATEDIFF_BIG(microsecond, '1970-01-01', s.next_at) AS since, q.name AS detail
FROM dialoq.read_work_schedules AS s
JOIN dialoq.read_work_queues AS q ON q.queue_id = s.queue_id
WHERE s.is_enabled = 1 AND DATEDIFF_BIG(microsecond, '1970-01-01', s.next_at) < CAST(@P1 AS bigint)
ORDER BY since, subject
