-- Does what is due: timers, lifetimes, closed endpoints, what the transmission queue can send, rollbacks that are
-- not counted yet, rows of processes that have ended, ids of units older than a week; scheduled jobs, leases, limits and history
-- of work queues. It passes over what is locked. If several sessions call it at once, one does the work. A step that fails is
-- recorded in tick_failure and tried again a minute later; one that cannot be recorded, or that meets a deadlock, in the next tick. The
-- other steps are done.
-- Takes: how many steps at most, 1 to 100000 (NULL: 500). A fourth of that is kept for each kind, so with several kinds it may be more;
--     variables for due_at and now_at: T-SQL cannot read the row, because INSERT .. EXEC is a transaction of the caller's
-- Gives: did, how many it did; due_at, when something is due next (NULL: nothing); notices; now_at, the server's clock;
--     has_due_schedules, whether a client has to fire a work schedule (fire_schedule); failure, why the last one of the steps failed
--     that the next tick tries again (NULL: none did)
-- Errors: 60005; also in a transaction of the caller's, which would stop tick for all other sessions; 1222 if a change
--     of definitions keeps the settings from being read for a second (READ_COMMITTED_SNAPSHOT OFF)
-- Locks: groups, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.tick
    @top int = 500, @due_at datetime2(6) = NULL OUTPUT, @now_at datetime2(6) = NULL OUTPUT
AS
BEGIN
    -- <settings>
    IF @@TRANCOUNT > 0
        THROW 60005, N'tick was called in a transaction, and would stop all others until its end; call it outside', 1;
    -- The transaction is this procedure's alone: one step that fails must not undo the others.
    SET XACT_ABORT OFF;
    SET IMPLICIT_TRANSACTIONS OFF;
    DECLARE @notices nvarchar(max), @now datetime2(6), @clock datetime2(6), @is_manual bit, @did int, @has_turn bit;
    DECLARE @due datetime2(6), @is_blocked bit, @past datetime2(6), @past_id bigint, @id bigint, @number bigint;
    DECLARE @is_locked bit, @attempt uniqueidentifier, @group uniqueidentifier, @text nvarchar(2048);
    DECLARE @endpoint_id bigint, @conversation_id uniqueidentifier, @is_initiator bit, @is_settled bit;
    DECLARE @process uniqueidentifier, @resource nvarchar(255);
    -- What is being done: whatever leaves the transaction unusable is noted as the fault of this.
    DECLARE @step nvarchar(40), @is_done bit = 0, @restarts int = 0, @error_number int, @error_message nvarchar(4000), @is_passing bit;
    -- The steps that this call passes over, and the last one of them. Before that one the next round ends, so that what it has done is
    -- committed before something else fails.
    DECLARE @passed nvarchar(max) = N' ', @failed nvarchar(40) = N'', @is_cut bit, @kept int = 0, @kept_notices nvarchar(max);
    DECLARE @failure nvarchar(2048), @is_noted bit;
    -- Thousands of timers that are due at once would leave nothing to the other kinds, until the last timer is done.
    DECLARE @least int, @limit int;
    DECLARE @did_jobs int = 0, @jobs_due datetime2(6), @top_jobs int, @has_due_schedules bit = 0;
    DECLARE @processes TABLE (row_number int IDENTITY(1, 1) PRIMARY KEY, process uniqueidentifier NOT NULL);
    SET @top = COALESCE(@top, 500);
    IF @top NOT BETWEEN 1 AND 100000
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'@top of tick is ', @top, N'; it must be 1 to 100000'));
        THROW 60005, @text, 1;
    END
    SET @least = (@top + 3) / 4;
    WHILE @is_done = 0
    BEGIN TRY
        -- Without READ_COMMITTED_SNAPSHOT a step may meet a row that a transaction is just removing. If tick waited for the end of
        -- that transaction, nothing else would be done meanwhile; the step is put off instead.
        SET LOCK_TIMEOUT 1000;
        SET @step = NULL;
        SET @notices = @kept_notices;
        SET @did = @kept;
        SET @is_manual = 0;
        SET @is_blocked = 0;
        SET @is_cut = 0;
        SET @past = '0001-01-01';
        SET @past_id = -1;
        BEGIN TRANSACTION;
        SELECT @now = COALESCE(b.manual_now, SYSUTCDATETIME()), @is_manual = CASE WHEN b.manual_now IS NULL THEN 0 ELSE 1 END
        FROM dialoq.broker AS b WHERE b.singleton = 1;
        SET @clock = SYSUTCDATETIME();
        SET @resource = CONCAT(N'dialoq:', DB_ID(), N':tick');
        EXEC dialoq.try_lock @resource, N'Exclusive', @has_turn OUTPUT;
        IF @has_turn = 0 SET @is_blocked = 1;
        SET @limit = CASE WHEN @top - @did > @least THEN @top ELSE @did + @least END;
        WHILE @has_turn = 1 AND @did < @limit AND @is_cut = 0
        BEGIN
            SET @id = NULL;
            SELECT TOP (1) @id = e.endpoint_id, @due = e.due_at
            FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
            WHERE e.due_at <= @now AND (e.due_at > @past OR e.due_at = @past AND e.endpoint_id > @past_id)
            ORDER BY e.due_at, e.endpoint_id;
            IF @id IS NULL BREAK;
            SET @past = @due;
            SET @past_id = @id;
            SET @step = CONCAT(N'due:', @id);
            SET @is_locked = NULL;
            IF @step = @failed SET @is_cut = 1;
            ELSE IF CHARINDEX(CONCAT(N' ', @step, N' '), @passed) = 0
                EXEC dialoq.try_due @id, @is_locked OUTPUT, @notices OUTPUT;
            SET @step = NULL;
            IF @is_locked IS NULL SET @is_blocked = 1;
            ELSE SET @did = @did + 1;
            IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
        END
        -- READPAST passes over rows that another transaction writes. They are due all the same.
        IF @has_turn = 1 AND @did < @limit AND @is_cut = 0 AND EXISTS (
            SELECT 1 FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.due_at <= @now)
            SET @is_blocked = 1;
        -- Attempts whose groups no session holds belong to transactions that have ended without a commit.
        SET @number = -1;
        SET @limit = CASE WHEN @top - @did > @least THEN @top ELSE @did + @least END;
        WHILE @has_turn = 1 AND @did < @limit AND @is_cut = 0
        BEGIN
            SET @attempt = NULL;
            SELECT TOP (1) @number = a.attempt_number, @attempt = a.attempt_id, @group = a.conversation_group_id
            FROM dialoq.receive_attempt AS a WITH (READCOMMITTEDLOCK, READPAST)
            WHERE a.attempt_number > @number ORDER BY a.attempt_number;
            IF @attempt IS NULL BREAK;
            SET @step = CONCAT(N'attempt:', @number);
            SET @is_locked = 0;
            IF @step = @failed SET @is_cut = 1;
            ELSE IF CHARINDEX(CONCAT(N' ', @step, N' '), @passed) = 0
                EXEC dialoq.try_attempt @attempt, @group, @is_locked OUTPUT, @notices OUTPUT, @failure OUTPUT;
            SET @step = NULL;
            -- The next ones may need the same lock, for which one wait is enough.
            IF @is_locked IS NULL SET LOCK_TIMEOUT 0;
            IF @is_locked = 1 SET @did = @did + 1;
        END
        SET LOCK_TIMEOUT 1000;
        -- A recheck that has to wait goes to the end of the line. While a transaction stays open, all those that wait for it would be
        -- read in each tick, and nothing else would be done meanwhile.
        SET @number = 0;
        SET @past = '0001-01-01';
        SET @past_id = -1;
        SET @limit = CASE WHEN @top - @did > @least THEN @top ELSE @did + @least END;
        WHILE @has_turn = 1 AND @did < @limit AND @is_cut = 0 AND @number < 4 * CAST(@top AS bigint)
        BEGIN
            SET @number = @number + 1;
            SET @id = NULL;
            SELECT TOP (1) @id = u.recheck_id, @endpoint_id = u.endpoint_id, @conversation_id = u.conversation_id,
                @is_initiator = u.is_initiator, @due = u.recheck_at
            FROM dialoq.recheck_queue AS u WITH (READCOMMITTEDLOCK, READPAST)
            WHERE u.recheck_at <= @clock AND (u.recheck_at > @past OR u.recheck_at = @past AND u.recheck_id > @past_id)
            ORDER BY u.recheck_at, u.recheck_id;
            -- The latest time of a request is a minute from now. A later one was requested before the clock was set back.
            IF @id IS NULL
                SELECT TOP (1) @id = u.recheck_id, @endpoint_id = u.endpoint_id, @conversation_id = u.conversation_id,
                    @is_initiator = u.is_initiator, @due = u.recheck_at
                FROM dialoq.recheck_queue AS u WITH (READCOMMITTEDLOCK, READPAST)
                WHERE u.recheck_at > DATEADD(second, 90, @clock)
                    AND (u.recheck_at > @past OR u.recheck_at = @past AND u.recheck_id > @past_id)
                ORDER BY u.recheck_at, u.recheck_id;
            IF @id IS NULL BREAK;
            SET @past = @due;
            SET @past_id = @id;
            SET @step = CONCAT(N'recheck:', @id);
            SET @is_settled = 0;
            IF @step = @failed SET @is_cut = 1;
            ELSE IF CHARINDEX(CONCAT(N' ', @step, N' '), @passed) = 0
                EXEC dialoq.try_requested_recheck @id, @endpoint_id, @conversation_id, @is_initiator, @clock, @is_settled OUTPUT,
                    @notices OUTPUT;
            SET @step = NULL;
            IF @is_settled = 1 SET @did = @did + 1;
            IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
        END
        IF @has_turn = 1 AND @is_cut = 0 AND CHARINDEX(N' tidy ', @passed) = 0
        BEGIN
            SET @step = N'tidy';
            DELETE TOP (@top) FROM dialoq.done_unit WITH (ROWLOCK, READPAST) WHERE done_at < DATEADD(day, -7, @clock);
            DELETE TOP (@top) FROM dialoq.tick_failure WITH (ROWLOCK, READPAST) WHERE failed_at < DATEADD(day, -7, @clock);
            DELETE FROM @processes;
            INSERT INTO @processes (process)
            SELECT m.process FROM dialoq.queue_monitor AS m WITH (READCOMMITTEDLOCK, READPAST)
            UNION
            SELECT t.process FROM dialoq.activated_task AS t WITH (READCOMMITTEDLOCK, READPAST);
            SET @number = 0;
            WHILE 1 = 1
            BEGIN
                SET @process = NULL;
                SELECT TOP (1) @number = p.row_number, @process = p.process
                FROM @processes AS p WHERE p.row_number > @number ORDER BY p.row_number;
                IF @process IS NULL BREAK;
                SET @resource = CONCAT(N'dialoq:process:', LOWER(CAST(@process AS nvarchar(36))));
                IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 0 CONTINUE;
                DELETE FROM dialoq.queue_monitor WITH (ROWLOCK, READPAST) WHERE process = @process;
                DELETE FROM dialoq.activated_task WITH (ROWLOCK, READPAST) WHERE process = @process;
            END
            SET @step = NULL;
        END
        COMMIT TRANSACTION;
        SET @kept = @did;
        SET @kept_notices = @notices;
        SET @failed = N'';
        IF @is_cut = 0
        BEGIN
            SET @due = NULL;
            -- READPAST would pass over a timer whose endpoint another transaction is writing. A client without a waiting receiver asks
            -- again after a minute only.
            SELECT @due = MIN(e.due_at)
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.due_at > @now;
            IF @did >= @top
                SET @due = @now;
            ELSE IF @is_blocked = 1 OR @is_manual = 0 AND EXISTS (
                SELECT 1 FROM dialoq.recheck_queue AS u WITH (READCOMMITTEDLOCK, READPAST))
            BEGIN
                IF @due IS NULL OR @due > DATEADD(second, 1, @now) SET @due = DATEADD(second, 1, @now);
            END
            ELSE IF @is_manual = 0 AND EXISTS (SELECT 1 FROM dialoq.receive_attempt AS a WITH (READCOMMITTEDLOCK, READPAST))
            BEGIN
                -- The host of the transaction may die without closing its connection.
                IF @due IS NULL OR @due > DATEADD(second, 5, @now) SET @due = DATEADD(second, 5, @now);
            END
            SET @is_done = 1;
        END
        -- Each round keeps a part for each kind, and there may be a hundred.
        ELSE IF @did >= 2 * @top
        BEGIN
            SET @due = @now;
            SET @is_done = 1;
        END
    END TRY
    BEGIN CATCH
        SET @error_number = ERROR_NUMBER();
        SET @error_message = ERROR_MESSAGE();
        SET @is_passing = dialoq.is_passing_error(@error_number, ERROR_SEVERITY());
        IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        -- The settings cannot be read.
        IF @now IS NULL THROW;
        SET @restarts = @restarts + 1;
        SET @is_noted = 0;
        IF @step IS NULL OR @restarts > 100
        BEGIN
            SET @did = @kept;
            SET @notices = @kept_notices;
            SET @due = DATEADD(second, 1, @now);
            SET @is_done = 1;
        END
        ELSE
        BEGIN
            -- What comes again is without it.
            SET @passed = CONCAT(@passed, @step, N' ');
            SET @failed = @step;
            IF @step <> N'tidy' AND @error_number NOT IN (1205, 51205) AND (@step NOT LIKE N'attempt:%' OR @is_passing = 0)
            BEGIN TRY
                SET LOCK_TIMEOUT 1000;
                BEGIN TRANSACTION;
                IF @step LIKE N'due:%' EXEC dialoq.note_failure @id, NULL, NULL, @error_number, @error_message;
                ELSE IF @step LIKE N'attempt:%' EXEC dialoq.note_failure -1, NULL, @attempt, @error_number, @error_message;
                ELSE EXEC dialoq.note_failure @endpoint_id, @id, NULL, @error_number, @error_message;
                COMMIT TRANSACTION;
                SET @is_noted = 1;
            END TRY
            BEGIN CATCH
                -- The next tick tries it again.
                IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
            END CATCH
        END
        IF @is_noted = 0 SET @failure = CONCAT(N'error ', @error_number, N': ', LEFT(@error_message, 2000));
    END CATCH
    BEGIN TRY
        EXEC dialoq.end_holds @now, 0, @notices OUTPUT;
    END TRY
    BEGIN CATCH
        SET @failure = CONCAT(N'error ', ERROR_NUMBER(), N': ', LEFT(ERROR_MESSAGE(), 2000));
        IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
    END CATCH
    SET @top_jobs = CASE WHEN @top - @did > @least THEN @top - @did ELSE @least END;
    BEGIN TRY
        EXEC dialoq.tick_jobs @now, @is_manual, @top_jobs, @did_jobs OUTPUT, @notices OUTPUT, @jobs_due OUTPUT, @failure OUTPUT;
    END TRY
    BEGIN CATCH
        SET @failure = CONCAT(N'error ', ERROR_NUMBER(), N': ', LEFT(ERROR_MESSAGE(), 2000));
        IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        SET @jobs_due = DATEADD(second, 1, @now);
    END CATCH
    SET @did = @did + @did_jobs;
    IF @jobs_due < @due OR @due IS NULL SET @due = @jobs_due;
    SET @jobs_due = NULL;
    SELECT TOP (1) @jobs_due = s.next_at
    FROM dialoq.work_schedule AS s WITH (READUNCOMMITTED, INDEX (work_schedule_next), FORCESEEK)
    WHERE s.next_at > @now ORDER BY s.next_at;
    IF @jobs_due < @due OR @due IS NULL SET @due = @jobs_due;
    SET @jobs_due = NULL;
    SELECT @jobs_due = MIN(q.receives_held_until) FROM dialoq.service_queue AS q WITH (READUNCOMMITTED);
    -- The row of a hold that is over may have been locked.
    IF @jobs_due <= @now SET @jobs_due = DATEADD(millisecond, 50, @now);
    IF @jobs_due < @due OR @due IS NULL SET @due = @jobs_due;
    IF EXISTS (SELECT 1 FROM dialoq.work_schedule AS s WITH (READUNCOMMITTED) WHERE s.next_at <= @now)
        SET @has_due_schedules = 1;
    SET LOCK_TIMEOUT -1;
    IF @is_manual = 0 SET @now = SYSUTCDATETIME();
    SET @due_at = @due;
    SET @now_at = @now;
    SELECT @did AS did, @due AS due_at, dialoq.distinct_notices(@notices) AS notices, @now AS now_at,
        @has_due_schedules AS has_due_schedules, @failure AS failure;
END
GO
