-- Work schedules that should have fired and have not.
-- Takes: $1 only times before this moment, in microseconds
-- Gives: subject (the work schedule), amount (1), since (when it should have fired), detail (the work queue)
SELECT s.name AS subject, 1::bigint AS amount, (extract(epoch FROM s.next_at) * 1000000.0)::bigint AS since, q.name AS detail
FROM dialoq.read_work_schedules AS s
JOIN dialoq.read_work_queues AS q ON q.queue_id = s.queue_id
WHERE s.is_enabled AND s.next_at < timestamptz 'epoch' + $1::bigint::float8 * interval '1 microsecond'
ORDER BY since, subject
