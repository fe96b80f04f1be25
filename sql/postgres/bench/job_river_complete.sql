-- River's JobSetStateIfRunningMany, with which its batch completer completes (github.com/riverqueue/river, v0.43.0, commit
-- fdf6cdf; Mozilla Public License 2.0, which this file keeps).
-- Takes: the ids
-- Gives: the jobs
WITH job_input AS (
    SELECT
        unnest($1::bigint[]) AS id,
        unnest(array_fill(false, ARRAY[cardinality($1)])) AS attempt_do_update,
        unnest(array_fill(0, ARRAY[cardinality($1)])) AS attempt,
        unnest(array_fill(false, ARRAY[cardinality($1)])) AS errors_do_update,
        unnest(array_fill('{}'::jsonb, ARRAY[cardinality($1)])) AS errors,
        unnest(array_fill(true, ARRAY[cardinality($1)])) AS finalized_at_do_update,
        unnest(array_fill(now(), ARRAY[cardinality($1)])) AS finalized_at,
        unnest(array_fill(false, ARRAY[cardinality($1)])) AS metadata_do_merge,
        unnest(array_fill('{}'::jsonb, ARRAY[cardinality($1)])) AS metadata_updates,
        unnest(array_fill(false, ARRAY[cardinality($1)])) AS scheduled_at_do_update,
        unnest(array_fill(now(), ARRAY[cardinality($1)])) AS scheduled_at,
        unnest(array_fill('completed'::text, ARRAY[cardinality($1)]))::dialoq_bench_river.river_job_state AS state
),
updated AS (
    UPDATE dialoq_bench_river.river_job
    SET
        attempt = CASE
            WHEN river_job.state = 'running'
                 AND NOT (job_input.state IN ('retryable','scheduled') AND river_job.metadata ? 'cancel_attempted_at')
                 AND job_input.attempt_do_update
            THEN job_input.attempt
            ELSE river_job.attempt
        END,
        errors = CASE
            WHEN river_job.state = 'running'
                 AND job_input.errors_do_update
            THEN array_append(river_job.errors, job_input.errors)
            ELSE river_job.errors
        END,
        finalized_at = CASE
            WHEN river_job.state = 'running'
                 AND (job_input.state IN ('retryable','scheduled') AND river_job.metadata ? 'cancel_attempted_at')
            THEN coalesce(NULL::timestamptz, now())
            WHEN river_job.state = 'running'
                 AND job_input.finalized_at_do_update
            THEN job_input.finalized_at
            ELSE river_job.finalized_at
        END,
        metadata = CASE
            WHEN job_input.metadata_do_merge
            THEN river_job.metadata || job_input.metadata_updates
            ELSE river_job.metadata
        END,
        scheduled_at = CASE
            WHEN river_job.state = 'running'
                 AND NOT (job_input.state IN ('retryable','scheduled') AND river_job.metadata ? 'cancel_attempted_at')
                 AND job_input.scheduled_at_do_update
            THEN job_input.scheduled_at
            ELSE river_job.scheduled_at
        END,
        state = CASE
            WHEN river_job.state = 'running'
                 AND (job_input.state IN ('retryable','scheduled') AND river_job.metadata ? 'cancel_attempted_at')
            THEN 'cancelled'::dialoq_bench_river.river_job_state
            WHEN river_job.state = 'running'
            THEN job_input.state
            ELSE river_job.state
        END
    FROM job_input
    WHERE river_job.id = job_input.id
      AND (river_job.state = 'running' OR job_input.metadata_do_merge)
    RETURNING river_job.*
)
SELECT river_job.*
FROM dialoq_bench_river.river_job
JOIN job_input ON river_job.id = job_input.id
WHERE NOT EXISTS (
    SELECT 1
    FROM updated
    WHERE updated.id = river_job.id
)
UNION ALL
SELECT *
FROM updated
ORDER BY id;
