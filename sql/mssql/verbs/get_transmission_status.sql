-- GET_TRANSMISSION_STATUS: why the first message of a conversation that waits still waits.
-- Takes: the handle
-- Gives: transmission_status, '' if nothing waits or the handle is unknown
-- Errors: none
-- Locks: none
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.get_transmission_status
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
    DECLARE @status nvarchar(256);
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        SELECT TOP (1) @status = t.status
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.effective_transmission AS t ON t.endpoint_id = e.endpoint_id
        WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0
        ORDER BY t.transmission_id;
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT COALESCE(@status, N'') AS transmission_status;
END
GO
