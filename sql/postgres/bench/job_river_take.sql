-- River's JobGetAvailable (github.com/riverqueue/river, v0.43.0, commit fdf6cdf; Mozilla Public License 2.0, which this file
-- keeps).
-- Takes: how many at most
-- Gives: the jobs
WITH locked_jobs AS (
    SELECT *
    FROM dialoq_bench_river.river_job
    WHERE state = 'available' AND queue = 'default' AND scheduled_at <= coalesce(NULL::timestamptz, now())
    ORDER BY priority ASC, scheduled_at ASC, id ASC
    LIMIT $1::integer
    FOR UPDATE
    SKIP LOCKED
)
UPDATE dialoq_bench_river.river_job
SET
    state = 'running',
    attempt = river_job.attempt + 1,
    attempted_at = coalesce(NULL::timestamptz, now()),
    attempted_by = array_append(
        CASE WHEN array_length(river_job.attempted_by, 1) >= 100
        THEN river_job.attempted_by[array_length(river_job.attempted_by, 1) + 2 - 100:]
        ELSE river_job.attempted_by
        END,
        'bench'::text
    )
FROM locked_jobs
WHERE river_job.id = locked_jobs.id
RETURNING river_job.*;
