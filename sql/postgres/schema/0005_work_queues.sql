-- Work queues: their settings, the jobs that are not finished, and the history of those that are.

CREATE TABLE dialoq.work_queue (
    queue_id integer PRIMARY KEY,
    name text NOT NULL,
    -- As in service_queue.
    folded_name text COLLATE "C" NOT NULL UNIQUE,
    is_enabled boolean NOT NULL,
    work_order text NOT NULL CHECK (work_order IN ('UNORDERED', 'FIFO', 'FIFO_STRICT', 'LIFO', 'PRIORITY')),
    has_history boolean NOT NULL,
    max_attempts bigint NOT NULL CHECK (max_attempts BETWEEN 1 AND 32767),
    retry_delay_ms bigint NOT NULL CHECK (retry_delay_ms BETWEEN 0 AND 31536000000),
    retry_factor_percent bigint NOT NULL CHECK (retry_factor_percent BETWEEN 100 AND 1000),
    max_retry_delay_ms bigint NOT NULL CHECK (max_retry_delay_ms BETWEEN 0 AND 31536000000),
    retry_jitter_percent bigint NOT NULL CHECK (retry_jitter_percent BETWEEN 0 AND 100),
    lease_ms bigint NOT NULL CHECK (lease_ms BETWEEN 1 AND 31536000000),
    history_seconds bigint NOT NULL CHECK (history_seconds BETWEEN 1 AND 3153600000),
    history_rows bigint NOT NULL CHECK (history_rows BETWEEN 1 AND 1000000000),
    max_taken bigint NOT NULL CHECK (max_taken BETWEEN 0 AND 1000000),
    max_taken_per_key bigint NOT NULL CHECK (max_taken_per_key BETWEEN 0 AND 1000000),
    rate_jobs bigint NOT NULL CHECK (rate_jobs BETWEEN 0 AND 1000000000),
    rate_ms bigint NOT NULL CHECK (rate_ms BETWEEN 1 AND 86400000),
    key_rate_jobs bigint NOT NULL CHECK (key_rate_jobs BETWEEN 0 AND 1000000000),
    max_queue_readers bigint NOT NULL CHECK (max_queue_readers BETWEEN 0 AND 32767)
);

-- Jobs that are not finished. state: 0 scheduled, 1 ready, 2 taken, 3 dead. A job is taken in the order of rank_from_top
-- and take_order, which its push computes from the order of its queue. due_at: when a scheduled job is due, or the end of a
-- lease. process and holder: the process and the transaction that hold a taken job; the transaction's commit completes it.
CREATE TABLE dialoq.job (
    job_id bigint PRIMARY KEY,
    queue_id integer NOT NULL,
    rank_from_top smallint NOT NULL,
    take_order bigint NOT NULL,
    state smallint NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    level smallint NOT NULL,
    due_at timestamptz,
    pushed_at timestamptz NOT NULL,
    taken_at timestamptz,
    failed_at timestamptz,
    process uuid,
    holder uuid,
    job_type text COLLATE "C" NOT NULL,
    job_key text COLLATE "C",
    unique_key text COLLATE "C",
    pushed_by text NOT NULL,
    taken_by text,
    last_error text,
    progress text,
    body bytea
-- The free room of a page takes the next version of a job that is taken, so that its push and its taking touch one page.
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE dialoq.job ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX job_ready ON dialoq.job (queue_id, rank_from_top, take_order) WHERE state = 1;
CREATE INDEX job_ready_type ON dialoq.job (queue_id, job_type, rank_from_top, take_order) WHERE state = 1;
-- Scheduled jobs, and leases that no open transaction keeps from ending.
CREATE INDEX job_due ON dialoq.job (due_at) WHERE due_at IS NOT NULL AND holder IS NULL;
-- What limits count: taken jobs, and failed jobs that wait for their next attempt.
CREATE INDEX job_taken ON dialoq.job (queue_id, job_key) WHERE state = 2;
CREATE INDEX job_retry ON dialoq.job (queue_id, job_key) WHERE state = 0 AND attempts > 0;
CREATE INDEX job_holder ON dialoq.job (process, holder) WHERE process IS NOT NULL;

-- The numbers of jobs and of their takings ascend over all queues.
CREATE SEQUENCE dialoq.next_job_id OWNED BY dialoq.job.job_id;
CREATE SEQUENCE dialoq.next_job_token OWNED BY dialoq.job.token;

-- Names under which a queue takes one job only. until_at: NULL is until the job is finished.
CREATE TABLE dialoq.unique_job (
    queue_id integer NOT NULL,
    unique_key text COLLATE "C" NOT NULL,
    job_id bigint NOT NULL,
    until_at timestamptz,
    PRIMARY KEY (queue_id, unique_key)
);
CREATE INDEX unique_job_until ON dialoq.unique_job (until_at) WHERE until_at IS NOT NULL;

-- When the next job would be taken if the jobs of a queue, or of one of its keys, came evenly; and when readers are woken
-- because their rate lets one more job go.
CREATE TABLE dialoq.work_rate (
    queue_id integer NOT NULL,
    is_of_key boolean NOT NULL,
    job_key text COLLATE "C" NOT NULL,
    next_take timestamptz NOT NULL,
    wake_at timestamptz,
    PRIMARY KEY (queue_id, is_of_key, job_key)
) WITH (fillfactor = 70);
CREATE INDEX work_rate_wake ON dialoq.work_rate (wake_at) WHERE wake_at IS NOT NULL;

-- Finished jobs. finished_as: 4 done, 5 cancelled. Rows are inserted and, from the oldest, deleted, never updated.
CREATE TABLE dialoq.job_history (
    finish_number bigint GENERATED ALWAYS AS IDENTITY,
    queue_id integer NOT NULL,
    job_id bigint NOT NULL,
    finished_as smallint NOT NULL,
    level smallint NOT NULL,
    attempts integer NOT NULL,
    pushed_at timestamptz NOT NULL,
    taken_at timestamptz,
    finished_at timestamptz NOT NULL,
    job_type text COLLATE "C" NOT NULL,
    job_key text COLLATE "C",
    pushed_by text NOT NULL,
    taken_by text,
    last_error text,
    result bytea,
    PRIMARY KEY (queue_id, finish_number)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- Only results are asked for by the id of their job.
CREATE INDEX job_history_result ON dialoq.job_history (job_id) WHERE result IS NOT NULL;

-- The last number of each history when its rows were last counted.
CREATE TABLE dialoq.job_history_cut (
    queue_id integer PRIMARY KEY,
    finish_number bigint NOT NULL
);

-- Work queues that were dropped while a transaction may have pushed into them. tick removes what it left.
CREATE TABLE dialoq.dropped_work_queue (
    queue_id integer PRIMARY KEY,
    -- As in recheck_queue.
    after_xid xid8
);
