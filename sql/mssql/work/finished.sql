-- Finished jobs that the history keeps, the latest first. A parameter that is NULL chooses nothing.
-- Takes: @P1 queue, @P2 finished_as, @P3 job_type, @P4 job_id, @P5 at most so many, @P6 1 with results
-- Gives: job_id, queue, job_type, job_key, level, finished_as, attempts, pushed_at, pushed_by, taken_at, taken_by, finished_at, last_error, result
SELECT TOP (CAST(@P5 AS bigint))
    h.job_id, q.name AS queue, h.job_type, h.job_key, h.level,
    CASE h.finished_as WHEN 4 THEN N'done' ELSE N'cancelled' END AS finished_as, h.attempts, h.pushed_at, h.pushed_by,
    h.taken_at, h.taken_by, h.finished_at, h.last_error,
    CASE WHEN CAST(@P6 AS bigint) = 1 THEN h.result END AS result
FROM dialoq.read_job_history AS h
JOIN dialoq.read_work_queues AS q ON q.queue_id = h.queue_id
WHERE
    (@P1 IS NULL OR q.folded_name = TRANSLATE(CAST(@P1 AS nvarchar(4000)) COLLATE Latin1_General_100_BIN2,
        N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz'))
    AND (@P2 IS NULL OR CASE h.finished_as WHEN 4 THEN N'done' ELSE N'cancelled' END = CAST(@P2 AS nvarchar(4000)))
    AND (@P3 IS NULL OR h.job_type = CAST(@P3 AS nvarchar(4000))
        AND DATALENGTH(h.job_type) = DATALENGTH(CAST(@P3 AS nvarchar(4000))))
    AND (@P4 IS NULL OR h.job_id = CAST(@P4 AS bigint))
ORDER BY h.queue_id, h.finish_number DESC
