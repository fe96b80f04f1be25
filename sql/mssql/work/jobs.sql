-- Jobs that are not finished, in the order of their pushes. A parameter that is NULL chooses nothing.
-- Takes: @P1 queue, @P2 state, @P3 job_type, @P4 a part of last_error, @P5 job_id, @P6 taken before, @P7 at most so many, @P8 now, @P9 only jobs above this one
-- Gives: job_id, queue, job_type, job_key, level, state, attempts, token, due_at, pushed_at, pushed_by, taken_at, taken_by, failed_at, last_error, progress
SELECT TOP (CAST(@P7 AS bigint))
    j.job_id, j.queue, j.job_type, j.job_key, j.level, j.state_name AS state, j.attempts, j.token,
    CASE WHEN j.state IN (0, 2) THEN j.due_at END AS due_at, j.pushed_at, j.pushed_by, j.taken_at, j.taken_by, j.failed_at,
    j.last_error, j.progress
FROM (
    SELECT
        r.job_id, r.job_type, r.job_key, r.level, r.state, r.attempts, r.token, r.due_at, r.pushed_at, r.pushed_by, r.taken_at,
        r.taken_by, r.failed_at, r.last_error, r.progress, q.name AS queue, q.folded_name,
        CASE
            WHEN r.state = 0 AND r.due_at > CAST(@P8 AS bigint) THEN N'scheduled'
            WHEN r.state IN (0, 1) THEN N'ready'
            WHEN r.state = 2 AND r.due_at <= CAST(@P8 AS bigint) THEN N'lost'
            WHEN r.state = 2 THEN N'taken'
            ELSE N'dead'
        END AS state_name
    FROM dialoq.read_jobs AS r
    JOIN dialoq.read_work_queues AS q ON q.queue_id = r.queue_id
) AS j
WHERE
    (@P1 IS NULL OR j.folded_name = TRANSLATE(CAST(@P1 AS nvarchar(4000)) COLLATE Latin1_General_100_BIN2,
        N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz'))
    AND (@P2 IS NULL OR j.state_name = CAST(@P2 AS nvarchar(4000)))
    AND (@P3 IS NULL OR j.job_type = CAST(@P3 AS nvarchar(4000))
        AND DATALENGTH(j.job_type) = DATALENGTH(CAST(@P3 AS nvarchar(4000))))
    AND (@P4 IS NULL OR CHARINDEX(CAST(@P4 AS nvarchar(4000)) COLLATE Latin1_General_100_BIN2, j.last_error) > 0)
    AND (@P5 IS NULL OR j.job_id = CAST(@P5 AS bigint))
    AND (@P6 IS NULL OR j.state = 2 AND j.taken_at < CAST(@P6 AS bigint))
    AND j.job_id > CAST(@P9 AS bigint)
ORDER BY j.job_id
