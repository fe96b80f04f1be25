-- River's JobInsertFastMany, for one job (github.com/riverqueue/river, v0.43.0, commit fdf6cdf; Mozilla Public License 2.0,
-- which this file keeps). Its notification is left out, which favours it.
-- Takes: the arguments of the job as JSON
-- Gives: the job
WITH raw_job_data AS (
    SELECT
        unnest(ARRAY[0]::bigint[]) AS id,
        unnest(ARRAY[$1::text]::jsonb[]) AS args,
        unnest(ARRAY[NULL]::timestamptz[]) AS created_at,
        unnest(ARRAY['bench']::text[]) AS kind,
        unnest(ARRAY[25]::smallint[]) AS max_attempts,
        unnest(ARRAY['{}']::jsonb[]) AS metadata,
        unnest(ARRAY[1]::smallint[]) AS priority,
        unnest(ARRAY['default']::text[]) AS queue,
        unnest(ARRAY[NULL]::timestamptz[]) AS scheduled_at,
        unnest(ARRAY['available']::text[]) AS state,
        unnest(ARRAY['']::text[]) AS tags,
        unnest(ARRAY[NULL]::bytea[]) AS unique_key,
        unnest(ARRAY[0]::integer[]) AS unique_states
)
INSERT INTO dialoq_bench_river.river_job (
    id, args, created_at, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags, unique_key, unique_states)
SELECT
    coalesce(nullif(id, 0), nextval('dialoq_bench_river.river_job_id_seq'::regclass)),
    args,
    coalesce(nullif(created_at, '0001-01-01 00:00:00 +0000'), now()) AS created_at,
    kind,
    max_attempts,
    coalesce(metadata, '{}'::jsonb) AS metadata,
    priority,
    queue,
    coalesce(nullif(scheduled_at, '0001-01-01 00:00:00 +0000'), now()) AS scheduled_at,
    state::dialoq_bench_river.river_job_state,
    string_to_array(tags, ',')::varchar(255)[],
    nullif(unique_key, '')::bytea,
    nullif(unique_states::integer, 0)::bit(8)
FROM raw_job_data
ON CONFLICT (unique_key)
    WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL
        AND dialoq_bench_river.river_job_state_in_bitmask(unique_states, state)
    DO UPDATE SET kind = EXCLUDED.kind
RETURNING river_job.*, (xmax != 0) AS unique_skipped_as_duplicate;
