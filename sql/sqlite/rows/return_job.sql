-- A taken job went back before its reader saw it.
-- Takes: ?1 job_id, ?2 attempts
-- Gives: nothing
UPDATE dialoq_job SET state = 1, attempts = ?2, due_at = NULL WHERE job_id = ?1
