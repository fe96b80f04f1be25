-- Removes the body of a finished job, if it is not in the row of the job.
-- Takes: ?1 job_id
-- Gives: nothing
DELETE FROM dialoq_job_body WHERE job_id = ?1
