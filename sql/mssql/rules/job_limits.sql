-- Limits: how many jobs are taken at a time, and how fast. A limit counts what other takes have committed, so the takes of
-- a queue with limits come one after the other. A queue without limits (work_queue.is_limited) has no such lock.
-- Takes: see each routine
-- Gives: see each routine
-- Errors: see each routine
-- Locks: see each routine

-- Lets no other session take from a queue with limits, to the end of the transaction. The holder is another take, which is
-- short, or an open transaction of T-SQL that has taken. The server queues the takes that wait.
-- Gives: whether this transaction has it now; not if the queue has no ready job
-- Errors: 60043 if the takes before this one do not end within two seconds
CREATE PROCEDURE dialoq.lock_limits
    @queue_id int, @is_locked bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':limits:', @queue_id), @got int;
    DECLARE @name nvarchar(256), @text nvarchar(2048);
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    IF @is_locked = 1 RETURN;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 2000,
        @DbPrincipal = N'dialoq_user';
    SET @is_locked = CASE WHEN @got >= 0 THEN 1 ELSE 0 END;
    IF @is_locked = 1 OR NOT EXISTS (
        SELECT 1
        FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_state), FORCESEEK)
        WHERE j.queue_id = @queue_id AND j.state = 1)
        RETURN;
    SELECT @name = w.name FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
    SET @text = dialoq.throw_text(CONCAT(N'takes of work queue ''', @name, N''' come one after the other, and those of other ',
        N'transactions have not ended for two seconds; try again when they have'));
    THROW 60043, @text, 1;
END
GO

-- The time between two jobs of a rate, in microseconds; rounded up, so that no time has more jobs than the rate.
CREATE FUNCTION dialoq.rate_gap(@jobs bigint, @rate_ms bigint) RETURNS bigint AS
BEGIN
    RETURN (@rate_ms * 1000 + @jobs - 1) / @jobs;
END
GO

-- How far the jobs of a rate may run ahead of the time, in microseconds: so many may be taken at once.
CREATE FUNCTION dialoq.rate_burst(@jobs bigint, @rate_ms bigint) RETURNS bigint AS
BEGIN
    RETURN (@jobs - 1) * dialoq.rate_gap(@jobs, @rate_ms);
END
GO

-- Counts a taken job against the rates of its queue. tick wakes readers when a rate lets another job go, and forgets it when it
-- holds nothing back. The caller holds lock_limits.
-- Gives: a notice of the time when readers are woken, if a rate lets no further job go now, added to @notices
CREATE PROCEDURE dialoq.count_rates
    @queue_id int, @job_key nvarchar(256), @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @rate_jobs bigint, @key_rate_jobs bigint, @rate_ms bigint;
    SELECT @rate_jobs = w.rate_jobs, @key_rate_jobs = w.key_rate_jobs, @rate_ms = w.rate_ms
    FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
    IF @rate_jobs > 0 EXEC dialoq.count_rate @queue_id, 0, N'', @rate_jobs, @rate_ms, @now, @notices OUTPUT;
    IF @key_rate_jobs > 0 AND @job_key IS NOT NULL
        EXEC dialoq.count_rate @queue_id, 1, @job_key, @key_rate_jobs, @rate_ms, @now, @notices OUTPUT;
END
GO

-- The same of one rate.
CREATE PROCEDURE dialoq.count_rate
    @queue_id int, @is_of_key bit, @job_key nvarchar(256), @jobs bigint, @rate_ms bigint, @now datetime2(6),
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @gap bigint = dialoq.rate_gap(@jobs, @rate_ms), @burst bigint = dialoq.rate_burst(@jobs, @rate_ms);
    DECLARE @next datetime2(6), @wake datetime2(6);
    SELECT @next = r.next_take
    FROM dialoq.work_rate AS r
    WHERE r.queue_id = @queue_id AND r.is_of_key = @is_of_key AND r.job_key = @job_key AND r.key_bytes = DATALENGTH(@job_key);
    IF @next IS NULL OR @next < @now SET @next = @now;
    -- A later one was counted before the clock was set back.
    IF @next > dialoq.add_us(@now, @burst + @gap) SET @next = dialoq.add_us(@now, @burst);
    SET @next = dialoq.add_us(@next, @gap);
    SET @wake = @next;
    IF @next > dialoq.add_us(@now, @burst)
    BEGIN
        SET @wake = dialoq.add_us(@next, -@burst);
        SET @notices = CONCAT(@notices, dialoq.due_notice(@wake));
    END
    UPDATE dialoq.work_rate SET next_take = @next, wake_at = @wake
    WHERE queue_id = @queue_id AND is_of_key = @is_of_key AND job_key = @job_key AND key_bytes = DATALENGTH(@job_key);
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.work_rate (queue_id, is_of_key, job_key, key_bytes, next_take, wake_at)
        VALUES (@queue_id, @is_of_key, @job_key, DATALENGTH(@job_key), @next, @wake);
END
GO

-- The keys of which no job may be taken now; a row without a key says that jobs without one are held back.
CREATE VIEW dialoq.blocked_job_key AS
SELECT t.queue_id, t.job_key, DATALENGTH(t.job_key) AS key_bytes
FROM (
    SELECT j.queue_id, j.job_key, w.max_taken_per_key, w.work_order
    FROM dialoq.job AS j
    JOIN dialoq.work_queue AS w ON w.queue_id = j.queue_id
    WHERE j.state = 2 AND (w.max_taken_per_key > 0 OR w.work_order = N'FIFO_STRICT')
    UNION ALL
    SELECT j.queue_id, j.job_key, w.max_taken_per_key, w.work_order
    FROM dialoq.job AS j
    JOIN dialoq.work_queue AS w ON w.queue_id = j.queue_id
    WHERE j.state = 0 AND j.attempts > 0 AND w.work_order = N'FIFO_STRICT'
) AS t
WHERE t.job_key IS NOT NULL OR t.work_order = N'FIFO_STRICT'
GROUP BY t.queue_id, t.job_key, DATALENGTH(t.job_key), t.max_taken_per_key
HAVING t.job_key IS NULL OR COUNT_BIG(*) >= CASE WHEN t.max_taken_per_key > 0 THEN t.max_taken_per_key ELSE 1 END
UNION ALL
SELECT r.queue_id, r.job_key, r.key_bytes
FROM dialoq.work_rate AS r
JOIN dialoq.work_queue AS w ON w.queue_id = r.queue_id
WHERE r.is_of_key = 1 AND w.key_rate_jobs > 0
    AND r.next_take > dialoq.add_us(dialoq.current_time_utc(), dialoq.rate_burst(w.key_rate_jobs, w.rate_ms))
    AND r.next_take <= dialoq.add_us(
        dialoq.current_time_utc(),
        dialoq.rate_burst(w.key_rate_jobs, w.rate_ms) + dialoq.rate_gap(w.key_rate_jobs, w.rate_ms));
GO

-- How many more jobs the limits of the queue itself let go now; NULL if there is no such limit. 0 also if an open transaction
-- has completed or failed a job of the queue, and the server keeps no version of its row that could be counted
-- (READ_COMMITTED_SNAPSHOT OFF): its end gives a notice.
CREATE PROCEDURE dialoq.room_of_queue
    @queue_id int, @now datetime2(6), @room bigint OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    DECLARE @max_taken bigint, @rate_jobs bigint, @rate_ms bigint, @next datetime2(6), @latest datetime2(6);
    SET @room = NULL;
    BEGIN TRY
        SELECT @max_taken = w.max_taken, @rate_jobs = w.rate_jobs, @rate_ms = w.rate_ms
        FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
        IF @max_taken > 0
            SELECT @room = @max_taken - COUNT_BIG(*)
            FROM (
                SELECT TOP (@max_taken) j.job_id FROM dialoq.job AS j WITH (INDEX (job_state), FORCESEEK)
                WHERE j.queue_id = @queue_id AND j.state = 2
            ) AS t;
        IF @rate_jobs > 0
        BEGIN
            SELECT @next = r.next_take
            FROM dialoq.work_rate AS r WHERE r.queue_id = @queue_id AND r.is_of_key = 0 AND r.job_key = N'' AND r.key_bytes = 0;
            SET @latest = dialoq.add_us(@now, dialoq.rate_burst(@rate_jobs, @rate_ms));
            IF @next > @latest AND @next <= dialoq.add_us(@latest, dialoq.rate_gap(@rate_jobs, @rate_ms)) SET @room = 0;
            -- The caller asks again after each job.
            ELSE IF @room IS NULL OR @room > 1 SET @room = 1;
        END
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @room = 0;
    END CATCH
END
GO

-- How many more jobs of a key may be taken now; NULL if there is no limit. In a queue of ORDER = FIFO_STRICT the jobs of the key
-- that are ready and come before the given one count too, so that none of them is overtaken, whatever a take asks for. A job
-- counts that a transaction has cancelled and not committed. 0 if the server keeps no version of a row that could be counted
-- (READ_COMMITTED_SNAPSHOT OFF).
-- Takes: the queue; the key; the job's place in strict order (NULL: none)
CREATE PROCEDURE dialoq.room_of_key
    @queue_id int, @job_key nvarchar(256), @strict_order bigint, @now datetime2(6), @room bigint OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    DECLARE @is_strict bit, @most bigint, @jobs bigint, @rate_ms bigint, @next datetime2(6), @ahead bigint, @gap bigint;
    SET @room = NULL;
    BEGIN TRY
        SELECT @is_strict = CASE w.work_order WHEN N'FIFO_STRICT' THEN 1 ELSE 0 END, @most = w.max_taken_per_key,
            @jobs = w.key_rate_jobs, @rate_ms = w.rate_ms
        FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
        IF @job_key IS NOT NULL AND @most > 0 SET @room = @most;
        ELSE IF @is_strict = 1 SET @room = 1;
        IF @room > 0 AND @job_key IS NOT NULL
            SELECT @room = @room - COUNT_BIG(*)
            FROM dialoq.job AS j WITH (INDEX (job_taken), FORCESEEK)
            WHERE j.queue_id = @queue_id AND j.job_key = @job_key AND DATALENGTH(j.job_key) = DATALENGTH(@job_key) AND j.state = 2;
        IF @room > 0 AND @is_strict = 1 AND @job_key IS NOT NULL
            SELECT @room = @room - COUNT_BIG(*)
            FROM dialoq.job AS j WITH (INDEX (job_retry), FORCESEEK)
            WHERE j.queue_id = @queue_id AND j.job_key = @job_key AND DATALENGTH(j.job_key) = DATALENGTH(@job_key)
                AND j.state = 0 AND j.attempts > 0;
        IF @is_strict = 1 AND @job_key IS NULL AND (
            EXISTS (
                SELECT 1 FROM dialoq.job AS j WITH (INDEX (job_taken), FORCESEEK)
                WHERE j.queue_id = @queue_id AND j.job_key IS NULL AND j.state = 2)
            OR EXISTS (
                SELECT 1 FROM dialoq.job AS j WITH (INDEX (job_retry), FORCESEEK)
                WHERE j.queue_id = @queue_id AND j.job_key IS NULL AND j.state = 0 AND j.attempts > 0))
            SET @room = 0;
        IF @jobs > 0 AND @job_key IS NOT NULL
        BEGIN
            SELECT @next = r.next_take
            FROM dialoq.work_rate AS r
            WHERE r.queue_id = @queue_id AND r.is_of_key = 1 AND r.job_key = @job_key AND r.key_bytes = DATALENGTH(@job_key);
            SET @ahead = dialoq.rate_burst(@jobs, @rate_ms);
            IF @next > @now SET @ahead = @ahead - DATEDIFF_BIG(microsecond, @now, @next);
            -- A time more than a gap beyond the burst was counted before the clock was set back.
            SET @gap = dialoq.rate_gap(@jobs, @rate_ms);
            SET @ahead = CASE WHEN @ahead < -@gap THEN 1 WHEN @ahead < 0 THEN 0 ELSE @ahead / @gap + 1 END;
            IF @room IS NULL OR @ahead < @room SET @room = @ahead;
        END
        SET @most = @room;
        IF @room > 0 AND @strict_order IS NOT NULL AND @job_key IS NULL
            SELECT @room = @room - COUNT_BIG(*)
            FROM (
                SELECT TOP (@most) j.job_id
                FROM dialoq.job AS j WITH (INDEX (job_strict), FORCESEEK)
                WHERE j.queue_id = @queue_id AND j.job_key IS NULL AND j.state = 1 AND j.strict_order < @strict_order
                    AND j.strict_order IS NOT NULL
            ) AS t;
        ELSE IF @room > 0 AND @strict_order IS NOT NULL
            SELECT @room = @room - COUNT_BIG(*)
            FROM (
                SELECT TOP (@most) j.job_id
                FROM dialoq.job AS j WITH (INDEX (job_strict), FORCESEEK)
                WHERE j.queue_id = @queue_id AND j.job_key = @job_key AND DATALENGTH(j.job_key) = DATALENGTH(@job_key)
                    AND j.state = 1 AND j.strict_order < @strict_order AND j.strict_order IS NOT NULL
            ) AS t;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @room = 0;
    END CATCH
END
GO

-- Whether the limits of a queue let a job be taken now. Without a lock, so that it is only a hint.
CREATE PROCEDURE dialoq.has_job_to_take
    @queue_id int, @now datetime2(6), @is_there bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    DECLARE @room bigint;
    SET @is_there = 0;
    EXEC dialoq.room_of_queue @queue_id, @now, @room OUTPUT;
    IF @room <= 0 RETURN;
    DECLARE @blocked TABLE (job_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NULL, key_bytes int NULL);
    BEGIN TRY
        INSERT INTO @blocked (job_key, key_bytes)
        SELECT b.job_key, b.key_bytes FROM dialoq.blocked_job_key AS b WHERE b.queue_id = @queue_id;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        -- No take gives a job either (room_of_key, take_one_by_one).
        RETURN;
    END CATCH
    IF EXISTS (
        SELECT 1
        FROM dialoq.job AS r WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_state), FORCESEEK)
        WHERE r.queue_id = @queue_id AND r.state = 1 AND NOT EXISTS (
            SELECT 1 FROM @blocked AS b
            WHERE b.job_key = r.job_key AND b.key_bytes = DATALENGTH(r.job_key) OR b.job_key IS NULL AND r.job_key IS NULL))
        SET @is_there = 1;
END
GO
