-- Jobs that are not finished, in the order of their pushes. A parameter that is NULL chooses nothing.
-- Takes: ?1 queue, ?2 state, ?3 job_type, ?4 a part of last_error, ?5 job_id, ?6 taken before, ?7 at most so many, ?8 now, ?9 only jobs above this one
-- Gives: job_id, queue, job_type, job_key, level, state, attempts, token, due_at, pushed_at, pushed_by, taken_at, taken_by, failed_at, last_error, progress
WITH shown AS (
    SELECT
        j.*, q.name AS queue,
        CASE
            WHEN j.state = 0 AND j.due_at > ?8 THEN 'scheduled'
            WHEN j.state IN (0, 1) THEN 'ready'
            WHEN j.state = 2 AND j.due_at <= ?8 THEN 'lost'
            WHEN j.state = 2 THEN 'taken'
            ELSE 'dead'
        END AS state_name
    FROM dialoq_job AS j
    JOIN dialoq_work_queue AS q ON q.queue_id = j.queue_id
)
SELECT
    job_id, queue, job_type, job_key, level, state_name AS state, attempts, token,
    CASE WHEN state IN (0, 2) THEN due_at END AS due_at, pushed_at, pushed_by, taken_at, taken_by, failed_at, last_error,
    progress
FROM shown
WHERE
    (?1 IS NULL OR queue = ?1 COLLATE NOCASE)
    AND (?2 IS NULL OR state_name = ?2)
    AND (?3 IS NULL OR job_type = ?3)
    AND (?4 IS NULL OR instr(last_error, ?4) > 0)
    AND (?5 IS NULL OR job_id = ?5)
    AND (?6 IS NULL OR state = 2 AND taken_at < ?6)
    AND job_id > ?9
ORDER BY job_id
LIMIT ?7
