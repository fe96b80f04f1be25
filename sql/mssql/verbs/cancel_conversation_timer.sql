-- Takes back a conversation's timer, if it has one; a DialogTimer message that has arrived stays. Ours.
-- Takes: the handle
-- Gives: notices
-- Errors: 58426, 58458
-- Locks: the conversation's group, waiting
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.cancel_conversation_timer
    @conversation_handle uniqueidentifier
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
    DECLARE @notices nvarchar(max), @endpoint_id bigint, @now datetime2(6);
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        SET @now = dialoq.current_time_utc();
        EXEC dialoq.lock_unended @conversation_handle, 58458, N'CANCEL CONVERSATION TIMER', @endpoint_id OUTPUT, @notices OUTPUT;
        UPDATE dialoq.conversation_endpoint SET dialog_timer = NULL WHERE endpoint_id = @endpoint_id;
        EXEC dialoq.reschedule @endpoint_id, @now, @notices OUTPUT;
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
