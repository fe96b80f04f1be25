-- TAKE: jobs that are ready, to a reader.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: 60002, 60005, 60043
-- Locks: the jobs, passing over those that others hold; in a queue with limits, lock_limits

-- Takes jobs. One job of a queue without limits needs no table variable.
-- Takes: as take_jobs; the process and the transaction that hold the jobs (NULL: a lease, or none), and its last token, as
--     claim_jobs
-- Gives: the jobs in the order of their queue, notices in the first; one row with notices only if there are some and no job: to a
--     claim that has given jobs back
CREATE PROCEDURE dialoq.take_ready_jobs
    @queue nvarchar(4000), @job_count bigint, @job_type nvarchar(4000), @lowest int, @highest int, @oldest bit, @has_lease bit,
    @lease_ms bigint, @taken_by nvarchar(4000), @process uniqueidentifier, @holder uniqueidentifier, @last_token bigint
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @queue_id int, @name nvarchar(256), @work_order nvarchar(16), @is_enabled bit, @is_limited bit, @default_ms bigint;
    DECLARE @take_by nvarchar(16), @are_taken bit = 0;
    DECLARE @now datetime2(6), @until datetime2(6), @from int = 0, @to int = 0, @is_final bit = 0;
    DECLARE @notices nvarchar(max), @has_more bit;
    EXEC dialoq.find_work_queue @queue, @queue_id OUTPUT;
    EXEC dialoq.check_take @queue_id, @job_count, @job_type, @lowest, @highest, @oldest, @has_lease, @lease_ms, @taken_by;
    SELECT @name = w.name, @work_order = w.work_order, @is_enabled = w.is_enabled, @is_limited = w.is_limited,
        @default_ms = w.lease_ms, @take_by = w.take_by
    FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
    SET @now = dialoq.current_time_utc();
    -- Jobs of a claim whose answer was lost are ready at once, so that this one finds them.
    IF @last_token IS NOT NULL AND EXISTS (
        SELECT 1
        FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_holder), FORCESEEK)
        WHERE j.process = @process AND j.holder = @holder AND j.token > @last_token)
        EXEC dialoq.release_held @process, @holder, @last_token, 9223372036854775807, 0, @has_more OUTPUT, @notices OUTPUT;
    IF @has_lease = 1 SET @until = dialoq.add_us(@now, 1000 * COALESCE(@lease_ms, @default_ms));
    -- Without a lease and a holder the taking itself completes the jobs.
    IF @until IS NULL AND @holder IS NULL SET @is_final = 1;
    IF @work_order = N'PRIORITY'
    BEGIN
        SET @from = 10 - COALESCE(@highest, 10);
        SET @to = 10 - COALESCE(@lowest, 1);
    END
    SET @taken_by = COALESCE(@taken_by, N'');
    IF @is_enabled = 0 SET @job_count = 0;
    -- A transaction of the caller may stay open, so no row may stay locked in it that is not taken. Babelfish has no such procedure.
    IF @take_by <> N'DEFAULT' AND @job_count > 0 AND @is_limited = 0 AND COALESCE(@oldest, 0) = 0 AND @@TRANCOUNT = 0
        AND SERVERPROPERTY('Babelfish') IS NULL
        EXEC dialoq.take_together @take_by, @queue_id, @name, @job_count, @job_type, @from, @to, @now, @until, @taken_by, @process,
            @holder, @is_final, @notices, @are_taken OUTPUT;
    -- Only a search one by one says that there is no job.
    IF @are_taken = 1 RETURN;
    IF @job_count = 1 AND @is_limited = 0 AND COALESCE(@oldest, 0) = 0
        EXEC dialoq.take_one_job @queue_id, @name, @job_type, @from, @to, @now, @until, @taken_by, @process, @holder, @is_final,
            @notices;
    ELSE
        EXEC dialoq.take_one_by_one @queue_id, @name, @job_count, @job_type, @from, @to, @oldest, @is_limited, @now, @until,
            @lease_ms, @taken_by, @process, @holder, @is_final, @notices;
END
GO

-- Takes a job that was ready a moment ago. is_taken is 0 if another session has taken, cancelled or locked it since. The
-- lock of the job comes last: a take that comes too late must not hold it for a moment, in which its reader's report would be
-- refused. The verb's own transaction is short and needs no lock; a verb that meets its row waits for its COMMIT.
CREATE PROCEDURE dialoq.take_job
    @job_id bigint, @now datetime2(6), @until datetime2(6), @taken_by nvarchar(256), @process uniqueidentifier,
    @holder uniqueidentifier, @is_own bit, @token bigint OUTPUT, @is_taken bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET @is_taken = 0;
    SET @token = NEXT VALUE FOR dialoq.next_job_token;
    IF @is_own = 0 SAVE TRANSACTION dialoq_take;
    UPDATE dialoq.job WITH (ROWLOCK, READPAST)
    SET state = 2, attempts = attempts + 1, token = @token, due_at = @until, taken_at = @now, taken_by = @taken_by,
        progress = NULL, process = @process, holder = @holder
    WHERE job_id = @job_id AND state = 1;
    IF @@ROWCOUNT = 0 RETURN;
    SET @is_taken = 1;
    IF @is_own = 1 RETURN;
    EXEC dialoq.try_lock_job @job_id, @is_taken OUTPUT;
    -- Another session has locked it in order to cancel it.
    IF @is_taken = 0 ROLLBACK TRANSACTION dialoq_take;
END
GO

-- Takes one job of a queue without limits.
CREATE PROCEDURE dialoq.take_one_job
    @queue_id int, @name nvarchar(256), @job_type nvarchar(256), @from int, @to int, @now datetime2(6), @until datetime2(6),
    @taken_by nvarchar(256), @process uniqueidentifier, @holder uniqueidentifier, @is_final bit, @notices nvarchar(max)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @past_rank int = -1, @past_order bigint = 0, @job_id bigint, @token bigint;
    DECLARE @is_taken bit = 0, @type nvarchar(256), @key nvarchar(256), @level int, @attempts int, @pushed_at datetime2(6);
    DECLARE @pushed_by nvarchar(256), @last_error nvarchar(max), @body varbinary(max);
    -- <transaction>
    WHILE @is_taken = 0
    BEGIN
        EXEC dialoq.next_job @queue_id, @job_type, @from, @to, @past_rank OUTPUT, @past_order OUTPUT, @job_id OUTPUT;
        IF @job_id IS NULL BREAK;
        EXEC dialoq.take_job @job_id, @now, @until, @taken_by, @process, @holder, @is_own, @token OUTPUT,
            @is_taken OUTPUT;
    END
    IF @is_taken = 1
    BEGIN
        -- Before COMMIT: if this failed after COMMIT, the job would be lost.
        SELECT @type = j.job_type, @key = j.job_key, @level = j.level, @attempts = j.attempts, @pushed_at = j.pushed_at,
            @pushed_by = j.pushed_by, @last_error = j.last_error, @body = j.body
        FROM dialoq.job AS j WHERE j.job_id = @job_id;
        IF @is_final = 1 EXEC dialoq.finish_job @job_id, 4, NULL, @now, @notices OUTPUT;
        -- Every process looks for what is due once a minute.
        IF @until < DATEADD(minute, 1, @now) SET @notices = CONCAT(@notices, dialoq.due_notice(@until));
    END
    SET @notices = dialoq.distinct_notices(@notices);
    -- </transaction>
    SELECT @job_id AS job_id, @token AS token, @name AS queue, @type AS job_type, @key AS job_key, @level AS level,
        @attempts AS attempt, @pushed_at AS pushed_at, @pushed_by AS pushed_by, @until AS lease_until,
        @last_error AS last_error, @body AS body, @notices AS notices
    FROM (VALUES (@is_taken)) AS t (is_taken)
    WHERE t.is_taken = 1 OR @notices IS NOT NULL;
END
GO

-- Takes jobs one after the other; in a queue with limits each is chosen under what the limits let go after the one before. Without
-- READ_COMMITTED_SNAPSHOT a row that another transaction has changed cannot be counted; then it takes no further job and waits for
-- nothing, because others wait for this one.
CREATE PROCEDURE dialoq.take_one_by_one
    @queue_id int, @name nvarchar(256), @job_count bigint, @job_type nvarchar(256), @from int, @to int, @oldest bit,
    @is_limited bit, @now datetime2(6), @until datetime2(6), @lease_ms bigint, @taken_by nvarchar(256), @process uniqueidentifier,
    @holder uniqueidentifier, @is_final bit, @notices nvarchar(max)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @count bigint = 0, @job_id bigint, @token bigint, @is_taken bit, @is_locked bit = 1, @strict_order bigint;
    DECLARE @past_rank int = -1, @past_order bigint = 0, @room bigint, @key nvarchar(256), @is_keyless_blocked bit = 0;
    DECLARE @rate_jobs bigint, @aborts bit, @has_limits bit = 0, @resource nvarchar(255);
    -- Keys of which no job may be taken any more.
    DECLARE @blocked TABLE (
        job_key nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL, key_bytes int NOT NULL, PRIMARY KEY (job_key, key_bytes)
    );
    DECLARE @taken TABLE (
        place bigint NOT NULL PRIMARY KEY, job_id bigint NOT NULL, token bigint NOT NULL, job_type nvarchar(256) NOT NULL,
        job_key nvarchar(256) NULL, level int NOT NULL, attempts int NOT NULL, pushed_at datetime2(6) NOT NULL,
        pushed_by nvarchar(256) NOT NULL, last_error nvarchar(max) NULL, body varbinary(max) NULL
    );
    -- <transaction>
    IF @is_limited = 1 AND @job_count > 0
    BEGIN
        EXEC dialoq.lock_limits @queue_id, @is_locked OUTPUT;
        SET @has_limits = @is_locked;
        -- The wait may have lasted two seconds: a queue that was paused or dropped meanwhile gives no job.
        IF NOT EXISTS (SELECT 1 FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id AND w.is_enabled = 1) SET @is_locked = 0;
    END
    -- After a wait it is seconds later: a rate is asked what it lets go now, and leases begin now, as long as the queue says now.
    SET @now = dialoq.current_time_utc();
    IF @until IS NOT NULL
        SELECT @until = dialoq.add_us(@now, 1000 * COALESCE(@lease_ms, w.lease_ms))
        FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
    IF @is_limited = 1 AND @is_locked = 1
    BEGIN
        -- The refusals of this procedure end the transaction of a caller that has it ON, so it is OFF no longer than here.
        SET @aborts = CASE WHEN @@OPTIONS & 16384 = 0 THEN 0 ELSE 1 END;
        SET XACT_ABORT OFF;
        SET LOCK_TIMEOUT 0;
        BEGIN TRY
            INSERT INTO @blocked (job_key, key_bytes)
            SELECT DISTINCT b.job_key, b.key_bytes
            FROM dialoq.blocked_job_key AS b WHERE b.queue_id = @queue_id AND b.job_key IS NOT NULL;
        END TRY
        BEGIN CATCH
            IF ERROR_NUMBER() <> 1222 THROW;
            SET @is_locked = 0;
        END CATCH
        SET LOCK_TIMEOUT -1;
        IF @aborts = 1 SET XACT_ABORT ON;
    END
    IF @is_limited = 1 AND @is_locked = 1
    BEGIN
        -- Taken jobs are counted once, because other takes wait for the end of this one. Only a rate is asked after each job.
        SELECT @rate_jobs = w.rate_jobs FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
        EXEC dialoq.room_of_queue @queue_id, @now, @room OUTPUT;
        IF @rate_jobs = 0 AND @room < @job_count SET @job_count = @room;
    END
    WHILE @is_locked = 1 AND @count < @job_count
    BEGIN
        SET @job_id = NULL;
        IF @rate_jobs > 0
        BEGIN
            EXEC dialoq.room_of_queue @queue_id, @now, @room OUTPUT;
            IF @room <= 0 BREAK;
        END
        IF @oldest = 1
            -- The oldest of the first jobs of each rank. What is older than the last one was passed over.
            SELECT TOP (1) @job_id = f.job_id, @past_order = f.take_order
            FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS k (rank_from_top)
            CROSS APPLY (
                SELECT TOP (1) r.job_id, r.take_order
                FROM dialoq.job AS r WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_state), FORCESEEK)
                WHERE r.queue_id = @queue_id AND r.state = 1 AND r.rank_from_top = k.rank_from_top AND r.take_order > @past_order
                    AND (@job_type IS NULL OR r.job_type = @job_type AND DATALENGTH(r.job_type) = DATALENGTH(@job_type))
                    AND (r.job_key IS NOT NULL OR @is_keyless_blocked = 0)
                    AND NOT EXISTS (
                        SELECT 1 FROM @blocked AS b WHERE b.job_key = r.job_key AND b.key_bytes = DATALENGTH(r.job_key))
                    AND APPLOCK_TEST(
                        N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':job:', r.job_id), N'Exclusive', N'Transaction') = 1
                ORDER BY r.take_order
            ) AS f
            WHERE k.rank_from_top BETWEEN @from AND @to
            ORDER BY f.take_order;
        ELSE IF @is_limited = 0
            EXEC dialoq.next_job @queue_id, @job_type, @from, @to, @past_rank OUTPUT, @past_order OUTPUT, @job_id OUTPUT;
        ELSE IF @job_type IS NULL
            SELECT TOP (1) @job_id = r.job_id, @past_rank = r.rank_from_top, @past_order = r.take_order
            FROM dialoq.job AS r WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_state), FORCESEEK)
            WHERE r.queue_id = @queue_id AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
                AND (r.rank_from_top > @past_rank OR r.rank_from_top = @past_rank AND r.take_order > @past_order)
                AND (r.job_key IS NOT NULL OR @is_keyless_blocked = 0)
                AND NOT EXISTS (
                    SELECT 1 FROM @blocked AS b WHERE b.job_key = r.job_key AND b.key_bytes = DATALENGTH(r.job_key))
                AND APPLOCK_TEST(
                    N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':job:', r.job_id), N'Exclusive', N'Transaction') = 1
            ORDER BY r.rank_from_top, r.take_order;
        ELSE
            SELECT TOP (1) @job_id = r.job_id, @past_rank = r.rank_from_top, @past_order = r.take_order
            FROM dialoq.job AS r WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_ready_type), FORCESEEK)
            WHERE r.queue_id = @queue_id AND r.job_type = @job_type AND DATALENGTH(r.job_type) = DATALENGTH(@job_type)
                AND r.state = 1 AND r.rank_from_top BETWEEN @from AND @to
                AND (r.rank_from_top > @past_rank OR r.rank_from_top = @past_rank AND r.take_order > @past_order)
                AND (r.job_key IS NOT NULL OR @is_keyless_blocked = 0)
                AND NOT EXISTS (
                    SELECT 1 FROM @blocked AS b WHERE b.job_key = r.job_key AND b.key_bytes = DATALENGTH(r.job_key))
                AND APPLOCK_TEST(
                    N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':job:', r.job_id), N'Exclusive', N'Transaction') = 1
            ORDER BY r.rank_from_top, r.take_order;
        IF @job_id IS NULL BREAK;
        IF @is_limited = 1
        BEGIN
            SET @room = 0;
            SELECT @key = j.job_key, @strict_order = j.strict_order
            FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST) WHERE j.job_id = @job_id;
            IF @@ROWCOUNT = 0 CONTINUE;
            IF @strict_order IS NOT NULL
                EXEC dialoq.room_of_key @queue_id, @key, @strict_order, @now, @room OUTPUT;
            IF @strict_order IS NOT NULL AND @room <= 0
            BEGIN
                IF @key IS NULL SET @is_keyless_blocked = 1;
                ELSE INSERT INTO @blocked (job_key, key_bytes) VALUES (@key, DATALENGTH(@key));
                CONTINUE;
            END
        END
        EXEC dialoq.take_job @job_id, @now, @until, @taken_by, @process, @holder, @is_own, @token OUTPUT,
            @is_taken OUTPUT;
        IF @is_taken = 0 CONTINUE;
        SET @count = @count + 1;
        INSERT INTO @taken (
            place, job_id, token, job_type, job_key, level, attempts, pushed_at, pushed_by, last_error, body
        )
        SELECT @count, @job_id, @token, j.job_type, j.job_key, j.level, j.attempts, j.pushed_at, j.pushed_by, j.last_error,
            j.body
        FROM dialoq.job AS j WHERE j.job_id = @job_id;
        IF @is_limited = 1
        BEGIN
            EXEC dialoq.count_rates @queue_id, @key, @now, @notices OUTPUT;
            EXEC dialoq.room_of_key @queue_id, @key, NULL, @now, @room OUTPUT;
            IF @room <= 0 AND @key IS NULL SET @is_keyless_blocked = 1;
            ELSE IF @room <= 0 INSERT INTO @blocked (job_key, key_bytes) VALUES (@key, DATALENGTH(@key));
        END
        -- A limit counts a job that the taking completes until the end of the take, as every store does.
    END
    IF @is_final = 1
    BEGIN
        SET @token = 0;
        WHILE @token < @count
        BEGIN
            SET @token = @token + 1;
            SELECT @job_id = t.job_id FROM @taken AS t WHERE t.place = @token;
            EXEC dialoq.finish_job @job_id, 4, NULL, @now, @notices OUTPUT;
        END
    END
    -- Every process looks for what is due once a minute.
    IF @count > 0 AND @until < DATEADD(minute, 1, @now) SET @notices = CONCAT(@notices, dialoq.due_notice(@until));
    -- Before COMMIT: if this failed after COMMIT, the jobs would be lost.
    SET @notices = dialoq.distinct_notices(@notices);
    -- A transaction of the caller may stay open: without a job it lets the takes of others go. It keeps the lock of an earlier take.
    -- Babelfish keeps the lock to the end of the transaction.
    IF @has_limits = 1 AND @count = 0 AND @is_own = 0
    BEGIN
        SET @resource = CONCAT(N'dialoq:', DB_ID(), N':limits:', @queue_id);
        EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Transaction', @DbPrincipal = N'dialoq_user';
    END
    -- </transaction>
    SELECT t.job_id, t.token, @name AS queue, t.job_type, t.job_key, t.level, t.attempts AS attempt, t.pushed_at, t.pushed_by,
        @until AS lease_until, t.last_error, t.body, CASE COALESCE(t.place, 1) WHEN 1 THEN @notices END AS notices
    FROM (VALUES (@notices)) AS n (notices)
    LEFT JOIN @taken AS t ON 1 = 1
    WHERE t.job_id IS NOT NULL OR n.notices IS NOT NULL
    ORDER BY t.place;
END
GO
