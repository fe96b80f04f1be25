-- The rival River: its table as its migrations 001 to 007 leave it (github.com/riverqueue/river, v0.43.0, commit fdf6cdf;
-- Mozilla Public License 2.0, which this file keeps), in a schema of the bench.
-- Takes: nothing
-- Gives: nothing
DROP SCHEMA IF EXISTS dialoq_bench_river CASCADE;
CREATE SCHEMA dialoq_bench_river;
CREATE TYPE dialoq_bench_river.river_job_state AS ENUM (
    'available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
CREATE TABLE dialoq_bench_river.river_job (
    id bigserial PRIMARY KEY,
    state dialoq_bench_river.river_job_state NOT NULL DEFAULT 'available',
    attempt smallint NOT NULL DEFAULT 0,
    max_attempts smallint NOT NULL DEFAULT 25,
    attempted_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    finalized_at timestamptz,
    scheduled_at timestamptz NOT NULL DEFAULT now(),
    priority smallint NOT NULL DEFAULT 1,
    args jsonb NOT NULL,
    attempted_by text[],
    errors jsonb[],
    kind text NOT NULL,
    metadata jsonb NOT NULL DEFAULT '{}',
    queue text NOT NULL DEFAULT 'default',
    tags varchar(255)[] NOT NULL DEFAULT '{}',
    unique_key bytea,
    unique_states bit(8),
    CONSTRAINT finalized_or_finalized_at_null CHECK (
        (finalized_at IS NULL AND state NOT IN ('cancelled', 'completed', 'discarded'))
        OR (finalized_at IS NOT NULL AND state IN ('cancelled', 'completed', 'discarded'))),
    CONSTRAINT max_attempts_is_positive CHECK (max_attempts > 0),
    CONSTRAINT priority_in_range CHECK (priority >= 1 AND priority <= 4),
    CONSTRAINT queue_length CHECK (char_length(queue) > 0 AND char_length(queue) < 128),
    CONSTRAINT kind_length CHECK (char_length(kind) > 0 AND char_length(kind) < 128)
);
CREATE FUNCTION dialoq_bench_river.river_job_state_in_bitmask(bitmask bit(8), state dialoq_bench_river.river_job_state)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE state
        WHEN 'available' THEN get_bit(bitmask, 7)
        WHEN 'cancelled' THEN get_bit(bitmask, 6)
        WHEN 'completed' THEN get_bit(bitmask, 5)
        WHEN 'discarded' THEN get_bit(bitmask, 4)
        WHEN 'pending'   THEN get_bit(bitmask, 3)
        WHEN 'retryable' THEN get_bit(bitmask, 2)
        WHEN 'running'   THEN get_bit(bitmask, 1)
        WHEN 'scheduled' THEN get_bit(bitmask, 0)
        ELSE 0
    END = 1
$$;
CREATE INDEX river_job_kind ON dialoq_bench_river.river_job USING btree (kind);
CREATE INDEX river_job_state_and_finalized_at_index ON dialoq_bench_river.river_job USING btree (state, finalized_at)
    WHERE finalized_at IS NOT NULL;
CREATE INDEX river_job_prioritized_fetching_index ON dialoq_bench_river.river_job
    USING btree (state, queue, priority, scheduled_at, id);
CREATE INDEX river_job_args_index ON dialoq_bench_river.river_job USING gin (args);
CREATE INDEX river_job_metadata_index ON dialoq_bench_river.river_job USING gin (metadata);
CREATE UNIQUE INDEX river_job_unique_idx ON dialoq_bench_river.river_job (unique_key)
    WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL
        AND dialoq_bench_river.river_job_state_in_bitmask(unique_states, state);
