-- Notes that an open transaction has received from a group. Called on another connection, so that it is known even if
-- the transaction is never heard of again.
-- Takes: the transaction's attempt id, the queue, the group
-- Gives: nothing
-- Errors: none
-- Locks: none
IF OBJECT_ID(N'dialoq.begin_attempt') IS NOT NULL DROP PROCEDURE dialoq.begin_attempt
GO
CREATE PROCEDURE dialoq.begin_attempt
    @attempt_id uniqueidentifier, @queue_id int, @conversation_group_id uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    DECLARE @now datetime2(6) = dialoq.current_time_utc();
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        IF NOT EXISTS (
            SELECT 1 FROM dialoq.receive_attempt AS a
            WHERE a.attempt_id = @attempt_id AND a.conversation_group_id = @conversation_group_id)
            INSERT INTO dialoq.receive_attempt (attempt_id, conversation_group_id, queue_id, began_at)
            VALUES (@attempt_id, @conversation_group_id, @queue_id, @now);
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
END
GO
