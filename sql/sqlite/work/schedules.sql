-- Every work schedule, with its times.
-- Takes: nothing
-- Gives: name, queue, is_enabled, cron, time_zone, missed, job_type, job_key, level, next_us, last_us
SELECT
    s.name, q.name AS queue, s.is_enabled, s.cron, s.time_zone, s.missed, s.job_type, s.job_key, s.level, s.next_at AS next_us,
    s.last_at AS last_us
FROM dialoq_work_schedule AS s
JOIN dialoq_work_queue AS q ON q.queue_id = s.queue_id
ORDER BY s.name COLLATE NOCASE, s.schedule_id
