-- Removes the bodies of the jobs of a work queue that is dropped, before the jobs.
-- Takes: ?1 queue_id
-- Gives: nothing
DELETE FROM dialoq_job_body WHERE job_id IN (SELECT j.job_id FROM dialoq_job AS j WHERE j.queue_id = ?1)
