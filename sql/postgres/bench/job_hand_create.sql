-- The rival of a work queue: a table queue as it is written by hand, which marks its jobs. With it a table into which the
-- user's transactions of all sides write one row for each job.
-- Takes: nothing
-- Gives: nothing
DROP TABLE IF EXISTS dialoq_bench_job, dialoq_bench_result;
CREATE TABLE dialoq_bench_job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body bytea NOT NULL,
    pushed_at timestamptz NOT NULL DEFAULT now(),
    status smallint NOT NULL DEFAULT 0,
    taken_at timestamptz,
    taken_by text,
    completed_at timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX dialoq_bench_job_pending ON dialoq_bench_job (id) WHERE status = 0;
CREATE TABLE dialoq_bench_result (job_id bigint NOT NULL);
