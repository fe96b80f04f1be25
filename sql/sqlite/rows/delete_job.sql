-- Removes a finished job.
-- Takes: ?1 job_id
-- Gives: nothing
DELETE FROM dialoq_job WHERE job_id = ?1
