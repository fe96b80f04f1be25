-- Work queues: their settings, the jobs that are not finished, and the history of those that are.

CREATE TABLE dialoq_work_queue (
    queue_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    is_enabled INTEGER NOT NULL,
    work_order TEXT NOT NULL,
    has_history INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    retry_delay_ms INTEGER NOT NULL,
    retry_factor_percent INTEGER NOT NULL,
    max_retry_delay_ms INTEGER NOT NULL,
    retry_jitter_percent INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    history_seconds INTEGER NOT NULL,
    history_rows INTEGER NOT NULL,
    max_taken INTEGER NOT NULL,
    max_taken_per_key INTEGER NOT NULL,
    rate_jobs INTEGER NOT NULL,
    rate_ms INTEGER NOT NULL,
    key_rate_jobs INTEGER NOT NULL,
    max_queue_readers INTEGER NOT NULL
) STRICT;

-- All numbers ever given to jobs and to their takings are below these.
CREATE TABLE dialoq_work_marks (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    next_job_id INTEGER NOT NULL,
    next_token INTEGER NOT NULL
) STRICT;

INSERT INTO dialoq_work_marks (singleton, next_job_id, next_token) VALUES (1, 1, 1);

-- Jobs that are not finished, in the order of their pushes. state: 0 scheduled, 1 ready, 2 taken, 3 dead. due_at: when a
-- scheduled job is due, or the end of a lease. No secondary index: the order of taking is known in memory.
CREATE TABLE dialoq_job (
    job_id INTEGER PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    job_type TEXT NOT NULL,
    job_key TEXT,
    level INTEGER NOT NULL,
    state INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    token INTEGER NOT NULL,
    due_at INTEGER,
    pushed_at INTEGER NOT NULL,
    pushed_by TEXT NOT NULL,
    taken_at INTEGER,
    taken_by TEXT,
    failed_at INTEGER,
    last_error TEXT,
    progress TEXT,
    body BLOB
) STRICT;

-- Names under which a queue takes one job only. until_at: NULL is until the job is finished.
CREATE TABLE dialoq_unique_job (
    queue_id INTEGER NOT NULL,
    unique_key TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    until_at INTEGER,
    PRIMARY KEY (queue_id, unique_key)
) STRICT, WITHOUT ROWID;

-- Finished jobs, in the order in which each queue finished them. finished_as: 4 done, 5 cancelled.
CREATE TABLE dialoq_job_history (
    queue_id INTEGER NOT NULL,
    finish_number INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    job_type TEXT NOT NULL,
    job_key TEXT,
    level INTEGER NOT NULL,
    finished_as INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    pushed_at INTEGER NOT NULL,
    pushed_by TEXT NOT NULL,
    taken_at INTEGER,
    taken_by TEXT,
    finished_at INTEGER NOT NULL,
    last_error TEXT,
    result BLOB,
    PRIMARY KEY (queue_id, finish_number)
) STRICT, WITHOUT ROWID;

-- Only results are asked for by the id of their job.
CREATE INDEX dialoq_job_history_result ON dialoq_job_history (job_id) WHERE result IS NOT NULL;
