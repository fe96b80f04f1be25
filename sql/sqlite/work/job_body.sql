-- The content of one job that is not finished; no row if it is not there.
-- Takes: ?1 job_id
-- Gives: body
SELECT coalesce(j.body, (SELECT b.body FROM dialoq_job_body AS b WHERE b.job_id = ?1)) AS body
FROM dialoq_job AS j
WHERE j.job_id = ?1
