-- A dead job is ready again, with all its attempts.
-- Takes: ?1 job_id
-- Gives: nothing
UPDATE dialoq_job SET state = 1, attempts = 0, due_at = NULL WHERE job_id = ?1
