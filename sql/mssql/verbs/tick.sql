-- Does what is due: timers, lifetimes, closed endpoints, what the transmission queue can send, rollbacks that nobody
-- counted, rows of processes that are gone, ids of units older than a week. What is locked is passed over. Many may call
-- it at once: one does the work, the others come again later. Call it outside a transaction of your own.
-- Takes: how many things at most
-- Gives: did, how many it did; due_at, when something is due next (NULL: nothing); said; now_at, the server's clock
-- Errors: none
-- Locks: groups, without waiting
IF OBJECT_ID(N'dialoq.tick') IS NOT NULL DROP PROCEDURE dialoq.tick
GO
CREATE PROCEDURE dialoq.tick
    @top int = 500
AS
BEGIN
    SET NOCOUNT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    DECLARE @said nvarchar(max), @now datetime2(6), @clock datetime2(6), @is_manual bit = 0, @did int = 0, @got int;
    DECLARE @due datetime2(6), @is_blocked bit = 0, @past datetime2(6) = '0001-01-01', @past_id bigint = -1, @id bigint;
    DECLARE @is_locked bit, @is_new bit, @attempt uniqueidentifier, @group uniqueidentifier, @number bigint = -1;
    DECLARE @endpoint_id bigint, @conversation_id uniqueidentifier, @is_initiator bit, @is_settled bit;
    DECLARE @process uniqueidentifier, @resource nvarchar(255);
    DECLARE @processes TABLE (row_number int IDENTITY(1, 1) PRIMARY KEY, process uniqueidentifier NOT NULL);
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        SELECT @now = COALESCE(b.manual_now, SYSUTCDATETIME()), @is_manual = CASE WHEN b.manual_now IS NULL THEN 0 ELSE 1 END
        FROM dialoq.broker AS b WHERE b.singleton = 1;
        SET @clock = SYSUTCDATETIME();
        SET @got = -1;
        SET @resource = CONCAT(N'dialoq:', DB_ID(), N':tick');
        IF APPLOCK_TEST(N'public', @resource, N'Exclusive', N'Transaction') = 1
            EXEC @got = sp_getapplock
                @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
        IF @got < 0 SET @is_blocked = 1;
        WHILE @got >= 0 AND @did < @top
        BEGIN
            SET @id = NULL;
            SELECT TOP (1) @id = e.endpoint_id, @due = e.due_at
            FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
            WHERE e.due_at <= @now AND (e.due_at > @past OR e.due_at = @past AND e.endpoint_id > @past_id)
            ORDER BY e.due_at, e.endpoint_id;
            IF @id IS NULL BREAK;
            SET @past = @due;
            SET @past_id = @id;
            -- To take the lock is to take note of what is due.
            EXEC dialoq.lock_endpoint @id, 0, @is_locked OUTPUT, @said OUTPUT;
            IF @is_locked IS NULL SET @is_blocked = 1;
            ELSE SET @did = @did + 1;
            IF LEN(@said) > 1000 SET @said = N' ' + dialoq.words(@said);
        END
        -- Transactions that received and are gone: nobody holds their groups.
        WHILE @got >= 0 AND @did < @top
        BEGIN
            SET @attempt = NULL;
            SELECT TOP (1) @number = a.attempt_number, @attempt = a.attempt_id, @group = a.conversation_group_id
            FROM dialoq.receive_attempt AS a WITH (READCOMMITTEDLOCK, READPAST)
            WHERE a.attempt_number > @number ORDER BY a.attempt_number;
            IF @attempt IS NULL BREAK;
            EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT, @is_new OUTPUT;
            IF @is_locked = 0 CONTINUE;
            EXEC dialoq.count_attempt @attempt, @said OUTPUT;
            SET @did = @did + 1;
        END
        SET @number = -1;
        WHILE @got >= 0 AND @did < @top
        BEGIN
            SET @id = NULL;
            SELECT TOP (1) @id = u.unsettled_id, @endpoint_id = u.endpoint_id, @conversation_id = u.conversation_id,
                @is_initiator = u.is_initiator
            FROM dialoq.unsettled AS u WITH (READCOMMITTEDLOCK, READPAST)
            WHERE u.unsettled_id > @number AND u.look_at <= @clock ORDER BY u.unsettled_id;
            IF @id IS NULL BREAK;
            SET @number = @id;
            EXEC dialoq.settle @endpoint_id, @conversation_id, @is_initiator, @is_settled OUTPUT, @said OUTPUT;
            IF @is_settled = 1
            BEGIN
                DELETE FROM dialoq.unsettled WHERE unsettled_id = @id;
                SET @did = @did + 1;
            END
            ELSE
                UPDATE dialoq.unsettled SET look_at = DATEADD(millisecond, 500, @clock) WHERE unsettled_id = @id;
            IF LEN(@said) > 1000 SET @said = N' ' + dialoq.words(@said);
        END
        IF @got >= 0
        BEGIN
            DELETE TOP (@top) FROM dialoq.done_unit WHERE done_at < DATEADD(day, -7, @clock);
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
                IF APPLOCK_TEST(N'public', @resource, N'Exclusive', N'Transaction') = 0 CONTINUE;
                DELETE FROM dialoq.queue_monitor WITH (ROWLOCK, READPAST) WHERE process = @process;
                DELETE FROM dialoq.activated_task WITH (ROWLOCK, READPAST) WHERE process = @process;
            END
        END
        SET @due = NULL;
        SELECT @due = MIN(e.due_at)
        FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) WHERE e.due_at > @now;
        IF @did >= @top
            SET @due = @now;
        ELSE IF @is_blocked = 1 OR @is_manual = 0 AND EXISTS (
            SELECT 1 FROM dialoq.unsettled AS u WITH (READCOMMITTEDLOCK, READPAST))
        BEGIN
            IF @due IS NULL OR @due > DATEADD(second, 1, @now) SET @due = DATEADD(second, 1, @now);
        END
        ELSE IF @is_manual = 0 AND EXISTS (SELECT 1 FROM dialoq.receive_attempt AS a WITH (READCOMMITTEDLOCK, READPAST))
        BEGIN
            -- Its host may die without a word.
            IF @due IS NULL OR @due > DATEADD(second, 5, @now) SET @due = DATEADD(second, 5, @now);
        END
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    IF @is_manual = 0 SET @now = SYSUTCDATETIME();
    SELECT @did AS did, @due AS due_at, dialoq.words(@said) AS said, @now AS now_at;
END
GO
