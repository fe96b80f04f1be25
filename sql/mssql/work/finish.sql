-- How a job ended, if its history has it.
-- Takes: @P1 queue_id, @P2 job_id
-- Gives: finished_as, attempts
SELECT TOP (1) CASE h.finished_as WHEN 4 THEN N'done' ELSE N'cancelled' END AS finished_as, h.attempts
FROM dialoq.read_job_history AS h
WHERE h.job_id = CAST(@P2 AS bigint) AND h.queue_id = CAST(@P1 AS int)
ORDER BY h.finish_number DESC
