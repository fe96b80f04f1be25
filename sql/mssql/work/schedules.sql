-- Every work schedule, with its times.
-- Takes: nothing
-- Gives: name, queue, is_enabled, cron, time_zone, missed, job_type, job_key, level, next_us, last_us
SELECT
    s.name, q.name AS queue, s.is_enabled, s.cron, s.time_zone, s.missed, s.job_type, s.job_key, s.level,
    DATEDIFF_BIG(microsecond, '1970-01-01', s.next_at) AS next_us,
    DATEDIFF_BIG(microsecond, '1970-01-01', s.last_at) AS last_us
FROM dialoq.read_work_schedules AS s
JOIN dialoq.read_work_queues AS q ON q.queue_id = s.queue_id
ORDER BY LOWER(s.name), s.schedule_id
