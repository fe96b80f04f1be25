-- Writes a work schedule, new or not. Its times stay.
-- Takes: ?1 schedule_id, ?2 name, ?3 queue_id, ?4 is_enabled, ?5 cron, ?6 time_zone, ?7 missed, ?8 job_type, ?9 job_key, ?10 level, ?11 body
-- Gives: nothing
INSERT INTO dialoq_work_schedule (
    schedule_id, name, queue_id, is_enabled, cron, time_zone, missed, job_type, job_key, level, body
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (schedule_id) DO UPDATE SET
    is_enabled = ?4, cron = ?5, time_zone = ?6, missed = ?7, job_type = ?8, job_key = ?9, level = ?10, body = ?11
