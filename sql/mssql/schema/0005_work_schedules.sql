-- Work schedules: the jobs that work queues get at certain times.

-- next_at: when it fires next, NULL if it is paused. last_at: the time that it last pushed a job for. version grows with each
-- ALTER, so that a process that has read the row before fires nothing.
CREATE TABLE dialoq.work_schedule (
    schedule_id int NOT NULL PRIMARY KEY,
    name nvarchar(256) NOT NULL,
    -- As in service_queue.
    folded_name nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL UNIQUE,
    queue_id int NOT NULL,
    is_enabled bit NOT NULL,
    cron nvarchar(max) NOT NULL,
    time_zone nvarchar(256) NOT NULL,
    missed nvarchar(8) COLLATE Latin1_General_100_BIN2 NOT NULL CHECK (missed IN (N'ONCE', N'SKIP', N'ALL')),
    job_type nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    job_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NULL,
    level int NOT NULL CHECK (level BETWEEN 1 AND 10),
    body nvarchar(max) NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    next_at datetime2(6) NULL CHECK (next_at BETWEEN '1970-01-01' AND '9999-12-31'),
    last_at datetime2(6) NULL
);
CREATE INDEX work_schedule_next ON dialoq.work_schedule (next_at) WHERE next_at IS NOT NULL;
GO
-- As in 0002_checks.
IF @@VERSION NOT LIKE N'%Babelfish%'
    EXEC(N'ALTER INDEX ALL ON dialoq.work_schedule SET (ALLOW_PAGE_LOCKS = OFF);
        ALTER TABLE dialoq.work_schedule SET (LOCK_ESCALATION = DISABLE);')
GO
