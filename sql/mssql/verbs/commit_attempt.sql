-- Ends an attempt well: the last thing in the transaction that received, just before its COMMIT.
-- Takes: the attempt id
-- Gives: notices
-- Errors: none
-- Locks: none but what the transaction holds
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.commit_attempt
    @attempt_id uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET LOCK_TIMEOUT -1;
    SET ANSI_WARNINGS, ANSI_PADDING, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
    SET NUMERIC_ROUNDABORT OFF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    IF XACT_STATE() = -1 THROW 60020, N'the transaction can only be rolled back: an earlier statement of it failed', 1;
    DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    DECLARE @notices nvarchar(max), @number int = 0, @queue_id int, @group uniqueidentifier;
    DECLARE @gone TABLE (row_number int IDENTITY(1, 1) PRIMARY KEY, queue_id int NOT NULL, group_id uniqueidentifier NOT NULL);
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        DELETE FROM a
        OUTPUT deleted.queue_id, deleted.conversation_group_id INTO @gone (queue_id, group_id)
        FROM dialoq.receive_attempt AS a WITH (ROWLOCK, INDEX (receive_attempt_attempt), FORCESEEK)
        WHERE a.attempt_id = @attempt_id;
        WHILE 1 = 1
        BEGIN
            SET @group = NULL;
            SELECT TOP (1) @number = g.row_number, @queue_id = g.queue_id, @group = g.group_id
            FROM @gone AS g WHERE g.row_number > @number ORDER BY g.row_number;
            IF @group IS NULL BREAK;
            EXEC dialoq.forget_rollbacks @queue_id;
            EXEC dialoq.forget_group_rollbacks @group;
            -- What came while the group was locked can be received from now on.
            IF EXISTS (
                SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.conversation_group_id = @group)
                SET @notices = CONCAT(@notices, N' q:', @queue_id);
        END
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
