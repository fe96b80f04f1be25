-- Work schedules that should have fired and have not.
-- Takes: ?1 only times before this moment, in microseconds
-- Gives: subject (the work schedule), amount (1), since (when it should have fired), detail (the work queue)
SELECT s.name AS subject, 1 AS amount, s.next_at AS since, q.name AS detail
FROM dialoq_work_schedule AS s
JOIN dialoq_work_queue AS q ON q.queue_id = s.queue_id
WHERE s.is_enabled = 1 AND s.next_at < ?1
ORDER BY since, subject
