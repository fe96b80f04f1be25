-- Work queues: their settings, the jobs that are not finished, and the history of those that are.

CREATE TABLE dialoq.work_queue (
    queue_id int NOT NULL PRIMARY KEY,
    name nvarchar(256) NOT NULL,
    -- As in service_queue.
    folded_name nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL UNIQUE,
    is_enabled bit NOT NULL,
    work_order nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL
        CHECK (work_order IN (N'UNORDERED', N'FIFO', N'FIFO_STRICT', N'LIFO', N'PRIORITY')),
    has_history bit NOT NULL,
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
    max_queue_readers bigint NOT NULL CHECK (max_queue_readers BETWEEN 0 AND 32767),
    -- Whether the queue has a limit, so that the end of one job may let another one be taken.
    is_limited AS CAST(
        CASE WHEN work_order = N'FIFO_STRICT' OR max_taken + max_taken_per_key + rate_jobs + key_rate_jobs > 0 THEN 1 ELSE 0 END
        AS bit) PERSISTED
);
GO

-- Jobs that are not finished. state: 0 scheduled, 1 ready, 2 taken, 3 dead. A job is taken in the order of rank_from_top
-- and take_order, which its push computes from the order of its queue. due_at: when a scheduled job is due, or the end of a
-- lease. process and holder: the process and the transaction that hold a taken job; the transaction's commit completes it.
CREATE TABLE dialoq.job (
    job_id bigint NOT NULL PRIMARY KEY CLUSTERED,
    queue_id int NOT NULL,
    rank_from_top smallint NOT NULL,
    take_order bigint NOT NULL,
    state smallint NOT NULL,
    attempts int NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    level smallint NOT NULL,
    due_at datetime2(6) NULL,
    pushed_at datetime2(6) NOT NULL,
    taken_at datetime2(6) NULL,
    failed_at datetime2(6) NULL,
    process uniqueidentifier NULL,
    holder uniqueidentifier NULL,
    job_type nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    job_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NULL,
    unique_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NULL,
    pushed_by nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    taken_by nvarchar(256) COLLATE Latin1_General_100_BIN2 NULL,
    last_error nvarchar(max) NULL,
    progress nvarchar(max) NULL,
    body varbinary(max) NULL
);
CREATE INDEX job_state ON dialoq.job (queue_id, state, rank_from_top, take_order) INCLUDE (job_key);
CREATE INDEX job_ready_type ON dialoq.job (queue_id, job_type, rank_from_top, take_order) INCLUDE (job_key) WHERE state = 1;
-- Scheduled jobs, and leases that no open transaction keeps from ending.
CREATE INDEX job_due ON dialoq.job (due_at) INCLUDE (holder) WHERE due_at IS NOT NULL AND holder IS NULL;
-- What limits count: taken jobs, and failed jobs that wait for their next attempt.
CREATE INDEX job_taken ON dialoq.job (queue_id, job_key) WHERE state = 2;
CREATE INDEX job_retry ON dialoq.job (queue_id, job_key) WHERE state = 0 AND attempts > 0;
CREATE INDEX job_holder ON dialoq.job (process, holder, token) WHERE process IS NOT NULL;
GO

-- The numbers of jobs and of their takings ascend over all queues. SQL Server has one cache for all sessions; Babelfish has one
-- for each, and numbers from several caches do not ascend.
DECLARE @cache nvarchar(16) = CASE WHEN @@VERSION LIKE N'%Babelfish%' THEN N'CACHE 1' ELSE N'CACHE 100' END;
EXEC(N'CREATE SEQUENCE dialoq.next_job_id AS bigint START WITH 1 INCREMENT BY 1 ' + @cache);
EXEC(N'CREATE SEQUENCE dialoq.next_job_token AS bigint START WITH 1 INCREMENT BY 1 ' + @cache);
GO

-- Names under which a queue takes one job only. until_at: NULL is until the job is finished. To SQL Server a text equals the
-- same text with spaces at its end, so keys have their length beside them.
CREATE TABLE dialoq.unique_job (
    queue_id int NOT NULL,
    unique_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    key_bytes int NOT NULL,
    job_id bigint NOT NULL,
    until_at datetime2(6) NULL,
    PRIMARY KEY CLUSTERED (queue_id, unique_key, key_bytes)
);
CREATE INDEX unique_job_until ON dialoq.unique_job (until_at) WHERE until_at IS NOT NULL;
GO

-- When the next job would be taken if the jobs of a queue, or of one of its keys, came evenly; and when readers are woken
-- because their rate lets one more job go.
CREATE TABLE dialoq.work_rate (
    queue_id int NOT NULL,
    is_of_key bit NOT NULL,
    job_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    key_bytes int NOT NULL,
    next_take datetime2(6) NOT NULL,
    wake_at datetime2(6) NULL,
    PRIMARY KEY CLUSTERED (queue_id, is_of_key, job_key, key_bytes)
);
CREATE INDEX work_rate_wake ON dialoq.work_rate (wake_at) WHERE wake_at IS NOT NULL;
GO

-- Finished jobs. finished_as: 4 done, 5 cancelled. Rows are inserted and, from the oldest, deleted, never updated.
CREATE TABLE dialoq.job_history (
    finish_number bigint IDENTITY(1, 1) NOT NULL,
    queue_id int NOT NULL,
    job_id bigint NOT NULL,
    finished_as smallint NOT NULL,
    level smallint NOT NULL,
    attempts int NOT NULL,
    pushed_at datetime2(6) NOT NULL,
    taken_at datetime2(6) NULL,
    finished_at datetime2(6) NOT NULL,
    job_type nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    job_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NULL,
    pushed_by nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    taken_by nvarchar(256) COLLATE Latin1_General_100_BIN2 NULL,
    last_error nvarchar(max) NULL,
    result varbinary(max) NULL,
    PRIMARY KEY CLUSTERED (queue_id, finish_number)
);
CREATE INDEX job_history_job ON dialoq.job_history (job_id);
GO

-- The last number of each history when its rows were last counted.
CREATE TABLE dialoq.job_history_cut (
    queue_id int NOT NULL PRIMARY KEY,
    finish_number bigint NOT NULL
);
GO

-- Work queues that were dropped while a transaction may have pushed into them. tick removes what it left. By the server's
-- clock.
CREATE TABLE dialoq.dropped_work_queue (
    queue_id int NOT NULL PRIMARY KEY,
    dropped_at datetime2(6) NOT NULL
);
GO

-- What procedures take rows as; item counts from 0.
CREATE TYPE dialoq.job_id_rows AS TABLE (
    item int NOT NULL PRIMARY KEY,
    job_id bigint NULL
);
GO
CREATE TYPE dialoq.job_rows AS TABLE (
    item int NOT NULL PRIMARY KEY,
    job_id bigint NULL,
    token bigint NULL
);
GO

-- As in 0002_checks.
IF @@VERSION NOT LIKE N'%Babelfish%'
BEGIN
    DECLARE @text nvarchar(max);
    SELECT @text = STRING_AGG(CAST(CONCAT(
        N'ALTER INDEX ALL ON dialoq.', t.name, N' SET (ALLOW_PAGE_LOCKS = OFF); ',
        N'ALTER TABLE dialoq.', t.name, N' SET (LOCK_ESCALATION = DISABLE);') AS nvarchar(max)), N' ')
    FROM sys.tables AS t
    WHERE t.schema_id = SCHEMA_ID(N'dialoq') AND t.name IN (
        N'job', N'job_history', N'job_history_cut', N'unique_job', N'work_queue', N'work_rate');
    EXEC(@text);
END
GO
