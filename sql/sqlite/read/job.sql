-- Reads what a reader needs of a job that it has taken.
-- Takes: ?1 job_id
-- Gives: pushed_by, last_error, body
SELECT pushed_by, last_error, body FROM dialoq_job WHERE job_id = ?1
