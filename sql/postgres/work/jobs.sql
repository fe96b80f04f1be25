-- Jobs that are not finished, in the order of their pushes. A parameter that is NULL chooses nothing.
-- Takes: $1 queue, $2 state, $3 job_type, $4 a part of last_error, $5 job_id, $6 taken before, $7 at most so many, $8 now, $9 only jobs above this one
-- Gives: job_id, queue, job_type, job_key, level, state, attempts, token, due_at, pushed_at, pushed_by, taken_at, taken_by, failed_at, last_error, progress
SELECT
    j.job_id, j.queue, j.job_type, j.job_key, j.level, j.state_name AS state, j.attempts, j.token,
    CASE WHEN j.state IN (0, 2) THEN j.due_at END AS due_at, j.pushed_at, j.pushed_by, j.taken_at, j.taken_by, j.failed_at,
    j.last_error, j.progress
FROM (
    SELECT
        r.*, q.name AS queue,
        CASE
            WHEN r.state = 0 AND r.due_at > $8::bigint THEN 'scheduled'
            WHEN r.state IN (0, 1) THEN 'ready'
            WHEN r.state = 2 AND r.due_at <= $8::bigint THEN 'lost'
            WHEN r.state = 2 THEN 'taken'
            ELSE 'dead'
        END AS state_name
    FROM dialoq.read_jobs AS r
    JOIN dialoq.read_work_queues AS q ON q.queue_id = r.queue_id
) AS j
WHERE
    ($1::text IS NULL OR pg_catalog.lower(j.queue COLLATE "C") = pg_catalog.lower($1 COLLATE "C"))
    AND ($2::text IS NULL OR j.state_name = $2)
    AND ($3::text IS NULL OR j.job_type = $3)
    AND ($4::text IS NULL OR pg_catalog.strpos(j.last_error, $4) > 0)
    AND ($5::bigint IS NULL OR j.job_id = $5)
    AND ($6::bigint IS NULL OR j.state = 2 AND j.taken_at < $6)
    AND j.job_id > $9::bigint
ORDER BY j.job_id
LIMIT $7::bigint
