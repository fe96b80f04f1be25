-- A reader took a job.
-- Takes: ?1 job_id, ?2 attempts, ?3 token, ?4 due_at, the end of the lease, ?5 taken_at, ?6 taken_by
-- Gives: nothing
UPDATE dialoq_job
SET state = 2, attempts = ?2, token = ?3, due_at = ?4, taken_at = ?5, taken_by = ?6, progress = NULL
WHERE job_id = ?1
