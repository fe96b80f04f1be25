-- Reads what a reader needs of a job that it has taken.
-- Takes: ?1 job_id
-- Gives: pushed_by, last_error, body
SELECT
    j.pushed_by, j.last_error,
    coalesce(j.body, (SELECT b.body FROM dialoq_job_body AS b WHERE b.job_id = ?1)) AS body
FROM dialoq_job AS j
WHERE j.job_id = ?1
