-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: schedule_id, name, queue_id, is_enabled, cron, time_zone, missed, job_type, job_key, level, body, next_at, last_at
SELECT
    s.schedule_id, s.name, s.queue_id, s.is_enabled, s.cron, s.time_zone, s.missed, s.job_type, s.job_key, s.level, s.body,
    s.next_at, s.last_at
FROM dialoq_work_schedule AS s ORDER BY s.schedule_id
