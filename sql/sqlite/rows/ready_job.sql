-- A job whose time had come is ready although the clock was set back.
-- Takes: ?1 job_id
-- Gives: nothing
UPDATE dialoq_job SET state = 1, due_at = NULL WHERE job_id = ?1
