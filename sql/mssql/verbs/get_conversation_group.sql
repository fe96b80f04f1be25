-- GET CONVERSATION GROUP: locks the group that RECEIVE would take from. Never waits. Outside a transaction the lock is
-- free again when this is over.
-- Takes: the queue
-- Gives: conversation_group_id (NULL: none), notices
-- Errors: 59617, 60002
-- Locks: the group, without waiting
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.get_conversation_group
    @queue nvarchar(4000)
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
    DECLARE @queue_id int, @group uniqueidentifier, @past_top int = 0, @past bigint = -1, @seen nvarchar(max) = N'';
    EXEC dialoq.find_receivable @queue, @queue_id OUTPUT;
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        WHILE 1 = 1
        BEGIN
            EXEC dialoq.choose @queue_id, 0, 9, 0, @past_top OUTPUT, @past OUTPUT, @seen OUTPUT, @group OUTPUT;
            -- Another may have emptied it before the lock was ours.
            IF @group IS NULL
                OR EXISTS (SELECT 1 FROM dialoq.group_rank(@group, @queue_id) AS k WHERE k.oldest IS NOT NULL)
                BREAK;
        END
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT @group AS conversation_group_id, CAST(NULL AS nvarchar(max)) AS notices;
END
GO
