-- One step of tick each: an endpoint that is due, an attempt to count, a recheck. Each has a savepoint of its own, so a step that
-- fails undoes nothing else. If the transaction stays usable, the failure is recorded and the step postponed for a minute. If
-- not (XACT_STATE() is -1), the error is thrown, and tick begins a new transaction without that step.
-- Takes: see each procedure
-- Gives: notices, added to @notices
-- Errors: deadlocks, and errors that leave the transaction unusable
-- Locks: groups, without waiting

-- Records that a background step failed, and postpones it for a minute. endpoint_id 0 stands for the recheck of definitions.
-- If another transaction writes the endpoint's row, this skips the row: that transaction applies its events anyway.
CREATE PROCEDURE dialoq.note_failure
    @endpoint_id bigint, @recheck_id bigint, @attempt_id uniqueidentifier, @error_number int, @error_message nvarchar(4000)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @now datetime2(6) = dialoq.current_time_utc(), @clock datetime2(6) = SYSUTCDATETIME();
    UPDATE dialoq.tick_failure
    SET failures = failures + 1, error_number = @error_number, error_message = @error_message, failed_at = @clock
    WHERE endpoint_id = @endpoint_id AND failures < 2147483647;
    IF @@ROWCOUNT = 0 AND NOT EXISTS (SELECT 1 FROM dialoq.tick_failure AS f WHERE f.endpoint_id = @endpoint_id)
        INSERT INTO dialoq.tick_failure (endpoint_id, failures, error_number, error_message, failed_at)
        VALUES (@endpoint_id, 1, @error_number, @error_message, @clock);
    IF @recheck_id IS NOT NULL
        UPDATE dialoq.recheck_queue SET recheck_at = DATEADD(second, 60, @clock) WHERE recheck_id = @recheck_id;
    ELSE IF @attempt_id IS NOT NULL
        DELETE FROM dialoq.receive_attempt WITH (ROWLOCK, READPAST) WHERE attempt_id = @attempt_id;
    ELSE
        UPDATE dialoq.conversation_endpoint WITH (ROWLOCK, READPAST) SET due_at = DATEADD(second, 60, @now)
        WHERE endpoint_id = @endpoint_id AND due_at <= @now;
END
GO

-- Runs the due events of an endpoint. is_locked is NULL if another transaction holds its group.
CREATE PROCEDURE dialoq.try_due
    @endpoint_id bigint, @is_locked bit OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @error_number int, @error_message nvarchar(4000);
    SAVE TRANSACTION dialoq_step;
    BEGIN TRY
        -- lock_endpoint applies what is due.
        EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @notices OUTPUT;
    END TRY
    BEGIN CATCH
        SET @error_number = ERROR_NUMBER();
        SET @error_message = ERROR_MESSAGE();
        IF XACT_STATE() <> 1 OR @error_number IN (1205, 51205) THROW;
        ROLLBACK TRANSACTION dialoq_step;
        EXEC dialoq.note_failure @endpoint_id, NULL, NULL, @error_number, @error_message;
        SET @is_locked = 0;
    END CATCH
END
GO

-- Counts the rollback of a transaction that received and has ended, if no transaction holds its group. is_locked is NULL, and failure
-- says why, if an error that passes, such as a lock of a change of definitions, keeps it from being counted: without its record it would
-- never be counted.
CREATE PROCEDURE dialoq.try_attempt
    @attempt_id uniqueidentifier, @group uniqueidentifier, @is_locked bit OUTPUT, @notices nvarchar(max) OUTPUT,
    @failure nvarchar(2048) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @error_number int, @error_message nvarchar(4000), @is_passing bit, @now datetime2(6);
    SAVE TRANSACTION dialoq_step;
    BEGIN TRY
        EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
        -- Its own reader has not counted it.
        SET @now = SYSUTCDATETIME();
        IF @is_locked = 1 EXEC dialoq.count_attempt @attempt_id, @now, NULL, @notices OUTPUT;
    END TRY
    BEGIN CATCH
        SET @error_number = ERROR_NUMBER();
        SET @error_message = ERROR_MESSAGE();
        SET @is_passing = dialoq.is_passing_error(@error_number, ERROR_SEVERITY());
        IF XACT_STATE() <> 1 OR @error_number IN (1205, 51205) THROW;
        ROLLBACK TRANSACTION dialoq_step;
        SET @is_locked = CASE @is_passing WHEN 0 THEN 1 END;
        IF @is_passing = 1 SET @failure = CONCAT(N'error ', @error_number, N': ', LEFT(@error_message, 2000));
        ELSE EXEC dialoq.note_failure -1, NULL, @attempt_id, @error_number, @error_message;
    END CATCH
END
GO

-- Rechecks an endpoint, as request_recheck asked.
CREATE PROCEDURE dialoq.try_requested_recheck
    @recheck_id bigint, @endpoint_id bigint, @conversation_id uniqueidentifier, @is_initiator bit, @clock datetime2(6),
    @is_settled bit OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @error_number int, @error_message nvarchar(4000);
    SAVE TRANSACTION dialoq_step;
    BEGIN TRY
        EXEC dialoq.recheck @endpoint_id, @conversation_id, @is_initiator, @is_settled OUTPUT, @notices OUTPUT;
        IF @is_settled = 1
            DELETE FROM dialoq.recheck_queue WHERE recheck_id = @recheck_id;
        ELSE
            UPDATE dialoq.recheck_queue SET recheck_at = DATEADD(millisecond, 500, @clock) WHERE recheck_id = @recheck_id;
    END TRY
    BEGIN CATCH
        SET @error_number = ERROR_NUMBER();
        SET @error_message = ERROR_MESSAGE();
        IF XACT_STATE() <> 1 OR @error_number IN (1205, 51205) THROW;
        ROLLBACK TRANSACTION dialoq_step;
        EXEC dialoq.note_failure @endpoint_id, @recheck_id, NULL, @error_number, @error_message;
        SET @is_settled = 0;
    END CATCH
END
GO
