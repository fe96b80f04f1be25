-- The content of one job that is not finished; no row if it is not there.
-- Takes: @P1 job_id
-- Gives: body
SELECT j.body
FROM dialoq.read_jobs AS j
WHERE j.job_id = CAST(@P1 AS bigint)
