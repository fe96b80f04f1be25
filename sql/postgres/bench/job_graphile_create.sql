-- The rival graphile-worker: its tables and its function add_jobs as its migrations 1 to 19 leave them
-- (github.com/graphile/worker, v0.17.3, commit abfb4cf; MIT License, copyright 2019 Benjie Gillam), in a schema of the bench.
-- Takes: nothing
-- Gives: nothing
DROP SCHEMA IF EXISTS dialoq_bench_graphile CASCADE;
CREATE SCHEMA dialoq_bench_graphile;
CREATE TABLE dialoq_bench_graphile._private_job_queues (
    id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    queue_name text NOT NULL UNIQUE CHECK (length(queue_name) <= 128),
    locked_at timestamptz,
    locked_by text,
    is_available boolean GENERATED ALWAYS AS ((locked_at IS NULL)) STORED NOT NULL
);
ALTER TABLE dialoq_bench_graphile._private_job_queues ENABLE ROW LEVEL SECURITY;
CREATE TABLE dialoq_bench_graphile._private_tasks (
    id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    identifier text NOT NULL UNIQUE CHECK (length(identifier) <= 128)
);
ALTER TABLE dialoq_bench_graphile._private_tasks ENABLE ROW LEVEL SECURITY;
CREATE TABLE dialoq_bench_graphile._private_jobs (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    job_queue_id int NULL,
    task_id int NOT NULL,
    payload json DEFAULT '{}'::json NOT NULL,
    priority smallint DEFAULT 0 NOT NULL,
    run_at timestamptz DEFAULT now() NOT NULL,
    attempts smallint DEFAULT 0 NOT NULL,
    max_attempts smallint DEFAULT 25 NOT NULL CONSTRAINT jobs_max_attempts_check CHECK (max_attempts >= 1),
    last_error text,
    created_at timestamptz DEFAULT now() NOT NULL,
    updated_at timestamptz DEFAULT now() NOT NULL,
    key text UNIQUE CONSTRAINT jobs_key_check CHECK (length(key) > 0 AND length(key) <= 512),
    locked_at timestamptz,
    locked_by text,
    revision integer DEFAULT 0 NOT NULL,
    flags jsonb,
    is_available boolean GENERATED ALWAYS AS (((locked_at IS NULL) AND (attempts < max_attempts))) STORED NOT NULL
);
ALTER TABLE dialoq_bench_graphile._private_jobs ENABLE ROW LEVEL SECURITY;
CREATE INDEX jobs_main_index ON dialoq_bench_graphile._private_jobs USING btree (priority, run_at)
    INCLUDE (id, task_id, job_queue_id) WHERE (is_available = true);
CREATE INDEX jobs_no_queue_index ON dialoq_bench_graphile._private_jobs USING btree (priority, run_at)
    INCLUDE (id, task_id) WHERE (is_available = true AND job_queue_id IS NULL);
CREATE TYPE dialoq_bench_graphile.job_spec AS (
    identifier text, payload json, queue_name text, run_at timestamptz, max_attempts smallint, job_key text, priority smallint,
    flags text[]
);
INSERT INTO dialoq_bench_graphile._private_tasks (identifier) VALUES ('bench');
CREATE FUNCTION dialoq_bench_graphile.add_jobs(
    specs dialoq_bench_graphile.job_spec[], job_key_preserve_run_at boolean DEFAULT false)
RETURNS SETOF dialoq_bench_graphile._private_jobs LANGUAGE plpgsql AS $$
begin
  -- Ensure all the tasks exist
  insert into dialoq_bench_graphile._private_tasks as tasks (identifier)
  select distinct spec.identifier
  from unnest(specs) spec
  on conflict do nothing;
  -- Ensure all the queues exist
  insert into dialoq_bench_graphile._private_job_queues as job_queues (queue_name)
  select distinct spec.queue_name
  from unnest(specs) spec
  where spec.queue_name is not null
  on conflict do nothing;
  -- Ensure any locked jobs have their key cleared
  update dialoq_bench_graphile._private_jobs as jobs
  set
    key = null,
    attempts = jobs.max_attempts,
    updated_at = now()
  from unnest(specs) spec
  where spec.job_key is not null
  and jobs.key = spec.job_key
  and is_available is not true;
  perform pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":' || array_length(specs, 1)::text || '}');
  return query insert into dialoq_bench_graphile._private_jobs as jobs (
    job_queue_id,
    task_id,
    payload,
    run_at,
    max_attempts,
    key,
    priority,
    flags
  )
    select
      job_queues.id,
      tasks.id,
      coalesce(spec.payload, '{}'::json),
      coalesce(spec.run_at, now()),
      coalesce(spec.max_attempts, 25),
      spec.job_key,
      coalesce(spec.priority, 0),
      (
        select jsonb_object_agg(flag, true)
        from unnest(spec.flags) as item(flag)
      )
    from unnest(specs) spec
    inner join dialoq_bench_graphile._private_tasks as tasks
    on tasks.identifier = spec.identifier
    left join dialoq_bench_graphile._private_job_queues as job_queues
    on job_queues.queue_name = spec.queue_name
  on conflict (key) do update set
    job_queue_id = excluded.job_queue_id,
    task_id = excluded.task_id,
    payload =
      case
      when json_typeof(jobs.payload) = 'array' and json_typeof(excluded.payload) = 'array' then
        (jobs.payload::jsonb || excluded.payload::jsonb)::json
      else
        excluded.payload
      end,
    max_attempts = excluded.max_attempts,
    run_at = (case
      when job_key_preserve_run_at is true and jobs.attempts = 0 then jobs.run_at
      else excluded.run_at
    end),
    priority = excluded.priority,
    revision = jobs.revision + 1,
    flags = excluded.flags,
    -- always reset error/retry state
    attempts = 0,
    last_error = null,
    updated_at = now()
  where jobs.locked_at is null
  returning *;
end;
$$;
