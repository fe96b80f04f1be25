-- Writes when a work schedule fires next, and the time that it last pushed a job for, if there is a new one.
-- Takes: ?1 schedule_id, ?2 next_at, ?3 last_at
-- Gives: nothing
UPDATE dialoq_work_schedule SET next_at = ?2, last_at = coalesce(?3, last_at) WHERE schedule_id = ?1
