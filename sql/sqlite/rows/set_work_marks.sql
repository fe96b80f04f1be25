-- Moves the marks at or above which no number was ever given out.
-- Takes: ?1 next_job_id, ?2 next_token
-- Gives: nothing
UPDATE dialoq_work_marks SET next_job_id = ?1, next_token = ?2 WHERE singleton = 1
