-- Work schedules.
-- Takes: nothing
-- Gives: schedule_id, name, queue_id, is_enabled, cron, time_zone, missed, job_type, job_key, level, body
SELECT
    schedule_id, name, queue_id, is_enabled, cron, time_zone, missed, job_type, job_key, level, body
FROM dialoq.read_work_schedules ORDER BY schedule_id
