-- Writes a work queue, new or not, or removes one with its jobs and its history.
-- Takes: the columns of work_queue; or the queue_id
-- Gives: put_work_queue: nothing; delete_work_queue: notices
-- Errors: 60003, 60005; delete_work_queue: 53716 if a work schedule pushes into the queue, or a transaction holds a job of it
-- Locks: the row, the jobs
-- Called by: dialoq_admin (put_work_queue, delete_work_queue)
CREATE PROCEDURE dialoq.put_work_queue
    @queue_id int, @name nvarchar(256), @folded_name nvarchar(512), @is_enabled bit, @work_order nvarchar(32), @has_history bit,
    @take_by nvarchar(32), @max_attempts bigint, @retry_delay_ms bigint, @retry_factor_percent bigint, @max_retry_delay_ms bigint,
    @retry_jitter_percent bigint, @lease_ms bigint, @history_seconds bigint, @history_rows bigint, @max_taken bigint,
    @max_taken_per_key bigint, @rate_jobs bigint, @rate_ms bigint, @key_rate_jobs bigint, @max_queue_readers bigint
AS
BEGIN
    -- <definition>
    DECLARE @text nvarchar(2048), @is_shorter bit = 0;
    EXEC dialoq.check_name @name;
    IF @folded_name IS NULL OR @folded_name <> dialoq.fold_name(@name)
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the folded name of work queue ''', @name, N''' is ''', @folded_name,
            N'''; it must be ''', dialoq.fold_name(@name), N''''));
        THROW 60005, @text, 1;
    END
    SELECT @is_shorter = 1 FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id AND w.history_rows > @history_rows;
    -- The history is counted again, even if no job has finished since the last time.
    IF @is_shorter = 1 DELETE FROM dialoq.job_history_cut WHERE queue_id = @queue_id;
    BEGIN TRY
        UPDATE dialoq.work_queue SET
            is_enabled = @is_enabled, has_history = @has_history, take_by = @take_by, max_attempts = @max_attempts,
            retry_delay_ms = @retry_delay_ms, retry_factor_percent = @retry_factor_percent,
            max_retry_delay_ms = @max_retry_delay_ms, retry_jitter_percent = @retry_jitter_percent, lease_ms = @lease_ms,
            history_seconds = @history_seconds, history_rows = @history_rows, max_taken = @max_taken,
            max_taken_per_key = @max_taken_per_key, rate_jobs = @rate_jobs, rate_ms = @rate_ms,
            key_rate_jobs = @key_rate_jobs, max_queue_readers = @max_queue_readers
        WHERE queue_id = @queue_id;
        IF @@ROWCOUNT = 0
            INSERT INTO dialoq.work_queue (
                queue_id, name, folded_name, is_enabled, work_order, has_history, take_by, max_attempts, retry_delay_ms,
                retry_factor_percent, max_retry_delay_ms, retry_jitter_percent, lease_ms, history_seconds, history_rows,
                max_taken, max_taken_per_key, rate_jobs, rate_ms, key_rate_jobs, max_queue_readers
            ) VALUES (
                @queue_id, @name, @folded_name, @is_enabled, @work_order, @has_history, @take_by, @max_attempts, @retry_delay_ms,
                @retry_factor_percent, @max_retry_delay_ms, @retry_jitter_percent, @lease_ms, @history_seconds, @history_rows,
                @max_taken, @max_taken_per_key, @rate_jobs, @rate_ms, @key_rate_jobs, @max_queue_readers
            );
    END TRY
    BEGIN CATCH
        -- NULL where a value is needed, a number that is too large, a name that another row has.
        IF ERROR_NUMBER() NOT IN (515, 547, 2601, 2627) THROW;
        SET @text = dialoq.throw_text(CONCAT(N'the arguments of dialoq.put_work_queue make no row: ', ERROR_MESSAGE(),
            N'; correct them'));
        THROW 60005, @text, 1;
    END CATCH
    -- </definition>
END
GO
CREATE PROCEDURE dialoq.delete_work_queue
    @queue_id int
AS
BEGIN
    -- <definition>
    DECLARE @held bigint, @name nvarchar(256), @text nvarchar(2048), @notices nvarchar(max), @schedule nvarchar(256);
    EXEC dialoq.check_range N'@queue_id', @queue_id, -2147483648, 2147483647;
    SELECT @name = q.name FROM dialoq.work_queue AS q WHERE q.queue_id = @queue_id;
    SET @name = COALESCE(@name, CAST(@queue_id AS nvarchar(11)));
    SELECT TOP (1) @schedule = s.name FROM dialoq.work_schedule AS s WHERE s.queue_id = @queue_id ORDER BY s.schedule_id;
    IF @schedule IS NOT NULL
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'work queue ''', @name, N''' cannot be dropped: work schedule ''', @schedule,
            N''' pushes into it; drop the schedule first'));
        THROW 53716, @text, 1;
    END
    -- A push or a take that has read the row before goes on; tick removes what it leaves.
    DELETE FROM dialoq.work_queue WHERE queue_id = @queue_id;
    EXEC dialoq.find_held_job @queue_id, @held OUTPUT;
    IF @held IS NOT NULL
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'work queue ''', @name, N''' cannot be dropped: a transaction holds job ',
            NULLIF(@held, -1), N'; wait for its end'));
        THROW 53716, @text, 1;
    END
    EXEC dialoq.clear_work_queue @queue_id;
    IF NOT EXISTS (SELECT 1 FROM dialoq.dropped_work_queue AS d WHERE d.queue_id = @queue_id)
        INSERT INTO dialoq.dropped_work_queue (queue_id, dropped_at) VALUES (@queue_id, SYSUTCDATETIME());
    SET @notices = dialoq.due_notice(DATEADD(second, 1, dialoq.current_time_utc()));
    -- </definition>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO

-- A job of a queue that a transaction holds; -1 if the server keeps no version of its row that could be read
-- (READ_COMMITTED_SNAPSHOT OFF); NULL if there is none.
CREATE PROCEDURE dialoq.find_held_job
    @queue_id int, @job_id bigint OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    SET @job_id = NULL;
    BEGIN TRY
        SELECT TOP (1) @job_id = j.job_id
        FROM dialoq.job AS j WITH (INDEX (job_state), FORCESEEK)
        WHERE j.queue_id = @queue_id AND (j.holder IS NOT NULL OR APPLOCK_TEST(
            N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':job:', j.job_id), N'Exclusive', N'Transaction') = 0);
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @job_id = -1;
    END CATCH
END
GO

-- Removes what belongs to a work queue. Rows of open transactions are passed over.
CREATE PROCEDURE dialoq.clear_work_queue
    @queue_id int
AS
BEGIN
    SET NOCOUNT ON;
    DELETE FROM j FROM dialoq.job AS j WITH (ROWLOCK, READPAST, INDEX (job_state), FORCESEEK) WHERE j.queue_id = @queue_id;
    DELETE FROM dialoq.unique_job WITH (ROWLOCK, READPAST) WHERE queue_id = @queue_id;
    DELETE FROM dialoq.work_rate WITH (ROWLOCK, READPAST) WHERE queue_id = @queue_id;
    DELETE FROM dialoq.job_history WITH (ROWLOCK, READPAST) WHERE queue_id = @queue_id;
    DELETE FROM dialoq.job_history_cut WITH (ROWLOCK, READPAST) WHERE queue_id = @queue_id;
END
GO
