-- An attempt failed.
-- Takes: ?1 job_id, ?2 state, ?3 due_at, ?4 last_error, ?5 failed_at
-- Gives: nothing
UPDATE dialoq_job SET state = ?2, due_at = ?3, last_error = ?4, failed_at = ?5 WHERE job_id = ?1
