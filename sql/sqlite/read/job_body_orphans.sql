-- Finds bodies whose job does not exist.
-- Takes: nothing
-- Gives: job_id
SELECT b.job_id
FROM dialoq_job_body AS b
WHERE NOT EXISTS (SELECT 1 FROM dialoq_job AS j WHERE j.job_id = b.job_id)
ORDER BY b.job_id
