-- A lease was prolonged.
-- Takes: ?1 job_id, ?2 due_at
-- Gives: nothing
UPDATE dialoq_job SET due_at = ?2 WHERE job_id = ?1
