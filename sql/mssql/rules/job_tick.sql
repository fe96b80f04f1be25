-- What tick does for work queues, after its own transaction: due jobs and those of dead processes in one transaction, the rest
-- in others, which are short: a take waits for the rows of rates.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: jobs, without waiting

-- Scheduled jobs become ready, leases and the attempts of dead processes end, rates let jobs go, names whose windows are
-- over, old history and the rest of dropped queues go. It passes over what is locked. If several sessions call it at once, one
-- does the work. What the server lacks something for, or what meets a deadlock, stays as it is and keeps nothing else from being done.
-- Takes: the time, whether it is a test's, how many jobs at most
-- Gives: did, how many jobs changed; notices, added to @notices; due_at, the time of the next event; failure, why the last of those
--     failed that stay as they are
CREATE PROCEDURE dialoq.tick_jobs
    @now datetime2(6), @is_manual bit, @top int, @did int OUTPUT, @notices nvarchar(max) OUTPUT, @due_at datetime2(6) OUTPUT,
    @failure nvarchar(2048) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @new_notices nvarchar(max), @is_done bit = 0, @restarts int = 0, @job_id bigint, @past datetime2(6), @past_id bigint;
    DECLARE @due datetime2(6), @is_locked bit, @has_turn bit, @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':tick_jobs');
    DECLARE @error_number int, @error_message nvarchar(4000), @bad_job bigint, @is_more bit = 0, @at datetime2(6), @part int = 0;
    DECLARE @process uniqueidentifier, @holder uniqueidentifier, @token bigint, @is_passing bit, @is_buried bit;
    -- The jobs that this call passes over, and the last one of them. Before that one the next round ends, so that what it has done is
    -- committed before something else fails.
    DECLARE @passed nvarchar(max) = N' ', @failed bigint = -1, @is_cut bit, @kept int = 0, @kept_notices nvarchar(max), @failures int;
    -- As in tick.
    DECLARE @least int = (@top + 3) / 4, @limit int;
    SET @due_at = NULL;
    WHILE @is_done = 0
    BEGIN TRY
        SET LOCK_TIMEOUT 1000;
        SET @bad_job = NULL;
        SET @did = @kept;
        SET @new_notices = @kept_notices;
        SET @past = '0001-01-01';
        SET @past_id = -1;
        SET @is_cut = 0;
        SET @failures = 0;
        SET @limit = CASE WHEN @top - @did > @least THEN @top ELSE @did + @least END;
        BEGIN TRANSACTION;
        EXEC dialoq.try_lock @resource, N'Exclusive', @has_turn OUTPUT;
        WHILE @has_turn = 1 AND @did < @limit AND @is_cut = 0 AND @failures < 100
        BEGIN
            SET @job_id = NULL;
            SELECT TOP (1) @job_id = j.job_id, @due = j.due_at
            FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_due), FORCESEEK)
            WHERE j.due_at <= @now AND j.holder IS NULL AND (j.due_at > @past OR j.due_at = @past AND j.job_id > @past_id)
            ORDER BY j.due_at, j.job_id;
            IF @job_id IS NULL BREAK;
            SET @past = @due;
            SET @past_id = @job_id;
            IF @job_id = @failed SET @is_cut = 1;
            IF @is_cut = 1 OR CHARINDEX(CONCAT(N' ', @job_id, N' '), @passed) > 0 CONTINUE;
            SET @bad_job = @job_id;
            EXEC dialoq.run_due_job @job_id, @now, @is_locked OUTPUT, @new_notices OUTPUT, @failure OUTPUT;
            SET @bad_job = NULL;
            IF @is_locked = 1 SET @did = @did + 1;
            IF @is_locked IS NULL SET @failures = @failures + 1;
            -- The next ones may need the same lock, for which one wait is enough.
            IF @is_locked IS NULL SET LOCK_TIMEOUT 0;
            IF LEN(@new_notices) > 1000 SET @new_notices = N' ' + dialoq.distinct_notices(@new_notices);
        END
        SET LOCK_TIMEOUT 1000;
        SET @process = NULL;
        SET @holder = NULL;
        SET @failures = 0;
        SET @limit = CASE WHEN @top - @did > @least THEN @top ELSE @did + @least END;
        WHILE @has_turn = 1 AND @did < @limit AND @is_cut = 0 AND @failures < 100
        BEGIN
            EXEC dialoq.next_job_of_dead_process @process OUTPUT, @holder OUTPUT, @token OUTPUT, @job_id OUTPUT;
            IF @job_id IS NULL BREAK;
            IF @job_id = @failed SET @is_cut = 1;
            IF @is_cut = 1 OR CHARINDEX(CONCAT(N' ', @job_id, N' '), @passed) > 0 CONTINUE;
            SET @bad_job = @job_id;
            EXEC dialoq.fail_job_of_dead_process @job_id, @process, @token, @now, @is_locked OUTPUT, @new_notices OUTPUT, @failure OUTPUT;
            SET @bad_job = NULL;
            IF @is_locked = 1 SET @did = @did + 1;
            IF @is_locked IS NULL SET @failures = @failures + 1;
            IF @is_locked IS NULL SET LOCK_TIMEOUT 0;
            IF LEN(@new_notices) > 1000 SET @new_notices = N' ' + dialoq.distinct_notices(@new_notices);
        END
        COMMIT TRANSACTION;
        SET @kept = @did;
        SET @kept_notices = @new_notices;
        SET @failed = -1;
        -- Each round keeps a part for each kind, and there may be a hundred.
        IF @is_cut = 0 OR @did >= 2 * @top SET @is_done = 1;
    END TRY
    BEGIN CATCH
        SET @error_number = ERROR_NUMBER();
        SET @error_message = ERROR_MESSAGE();
        SET @is_passing = dialoq.is_passing_error(@error_number, ERROR_SEVERITY());
        IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        SET @restarts = @restarts + 1;
        SET @is_buried = 0;
        IF @bad_job IS NULL OR @restarts > 100
            SET @is_done = 1;
        ELSE
        BEGIN
            -- What comes again is without it.
            SET @passed = CONCAT(@passed, @bad_job, N' ');
            SET @failed = @bad_job;
            IF @is_passing = 0
            BEGIN TRY
                EXEC dialoq.bury_job @bad_job, @error_message;
                SET @is_buried = 1;
            END TRY
            BEGIN CATCH
                -- The next tick tries it again.
                IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
            END CATCH
        END
        IF @is_buried = 0 SET @failure = CONCAT(N'error ', @error_number, N': ', LEFT(@error_message, 2000));
    END CATCH
    SET @did = @kept;
    SET @notices = CONCAT(@notices, @kept_notices);
    SET LOCK_TIMEOUT 1000;
    -- In a transaction each, because old history that goes makes room for the rest.
    WHILE @has_turn = 1 AND @part < 4
    BEGIN TRY
        SET @part = @part + 1;
        SET @new_notices = NULL;
        BEGIN TRANSACTION;
        -- Two sessions that cut a history for the first time would both insert its row of job_history_cut.
        EXEC dialoq.try_lock @resource, N'Exclusive', @has_turn OUTPUT;
        IF @has_turn = 1 AND @part = 1 EXEC dialoq.wake_rates @now, @top, @new_notices OUTPUT;
        IF @has_turn = 1 AND @part = 2 EXEC dialoq.forget_unique_jobs @now, 500;
        IF @has_turn = 1 AND @part = 3 EXEC dialoq.clear_dropped_work_queues;
        IF @has_turn = 1 AND @part = 4 EXEC dialoq.cut_job_history @now, 2000, @is_more OUTPUT;
        COMMIT TRANSACTION;
        SET @notices = CONCAT(@notices, @new_notices);
    END TRY
    BEGIN CATCH
        SET @failure = CONCAT(N'error ', ERROR_NUMBER(), N': ', LEFT(ERROR_MESSAGE(), 2000));
        IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
    END CATCH
    SELECT TOP (1) @due_at = j.due_at
    FROM dialoq.job AS j WITH (READUNCOMMITTED, INDEX (job_due), FORCESEEK)
    WHERE j.due_at > @now AND j.holder IS NULL ORDER BY j.due_at;
    SELECT TOP (1) @at = r.wake_at
    FROM dialoq.work_rate AS r WITH (READUNCOMMITTED, INDEX (work_rate_wake), FORCESEEK)
    WHERE r.wake_at > @now ORDER BY r.wake_at;
    IF @at < @due_at OR @due_at IS NULL SET @due_at = @at;
    SET @at = NULL;
    IF @did >= @top OR @is_more = 1
        SET @at = @now;
    -- Another session does the work, or has locked the row.
    ELSE IF @has_turn = 0 OR @is_manual = 0 AND EXISTS (SELECT 1 FROM dialoq.dropped_work_queue AS d WITH (READUNCOMMITTED))
        OR EXISTS (
            SELECT 1 FROM dialoq.job AS j WITH (READUNCOMMITTED, INDEX (job_due), FORCESEEK)
            WHERE j.due_at <= @now AND j.holder IS NULL)
        SET @at = DATEADD(second, 1, @now);
    -- Its host may die without closing its connection.
    ELSE IF @is_manual = 0 AND EXISTS (
        SELECT 1 FROM dialoq.job AS j WITH (READUNCOMMITTED, INDEX (job_holder)) WHERE j.process IS NOT NULL)
        SET @at = DATEADD(second, 5, @now);
    IF @at < @due_at OR @due_at IS NULL SET @due_at = @at;
END
GO

-- Wakes the readers of queues whose rate lets one more job go, and forgets rates that hold nothing back.
-- Gives: notices, added to @notices
CREATE PROCEDURE dialoq.wake_rates
    @now datetime2(6), @top int, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @done int = 0, @queue_id int, @is_of_key bit, @job_key nvarchar(256), @key_bytes int;
    WHILE @done < @top
    BEGIN
        SET @queue_id = NULL;
        SELECT TOP (1) @queue_id = r.queue_id, @is_of_key = r.is_of_key, @job_key = r.job_key, @key_bytes = r.key_bytes
        FROM dialoq.work_rate AS r WITH (READCOMMITTEDLOCK, READPAST, INDEX (work_rate_wake), FORCESEEK)
        WHERE r.wake_at <= @now ORDER BY r.wake_at;
        IF @queue_id IS NULL BREAK;
        SET @done = @done + 1;
        DELETE FROM dialoq.work_rate WITH (ROWLOCK, READPAST)
        WHERE queue_id = @queue_id AND is_of_key = @is_of_key AND job_key = @job_key AND key_bytes = @key_bytes
            AND next_take <= @now;
        UPDATE dialoq.work_rate WITH (ROWLOCK, READPAST) SET wake_at = next_take
        WHERE queue_id = @queue_id AND is_of_key = @is_of_key AND job_key = @job_key AND key_bytes = @key_bytes;
        SET @notices = CONCAT(@notices, N' q:', @queue_id);
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
END
GO

-- Removes what transactions that pushed into a dropped queue have left. A verb that read the queue before has its rows written
-- ten seconds later, and uncommitted rows can be seen.
CREATE PROCEDURE dialoq.clear_dropped_work_queues
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @queue_id int = -2147483648, @next int, @dropped_at datetime2(6);
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = d.queue_id, @dropped_at = d.dropped_at
        FROM dialoq.dropped_work_queue AS d WITH (READCOMMITTEDLOCK, READPAST)
        WHERE d.queue_id > @queue_id ORDER BY d.queue_id;
        IF @next IS NULL BREAK;
        SET @queue_id = @next;
        EXEC dialoq.clear_work_queue @queue_id;
        IF @dropped_at > DATEADD(second, -10, SYSUTCDATETIME()) CONTINUE;
        IF NOT EXISTS (SELECT 1 FROM dialoq.job AS j WITH (READUNCOMMITTED) WHERE j.queue_id = @queue_id)
            AND NOT EXISTS (SELECT 1 FROM dialoq.job_history AS h WITH (READUNCOMMITTED) WHERE h.queue_id = @queue_id)
            DELETE FROM dialoq.dropped_work_queue WITH (ROWLOCK, READPAST) WHERE queue_id = @queue_id;
    END
END
GO
