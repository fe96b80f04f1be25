-- Whether a unit of that id has happened.
-- Takes: the unit's id
-- Gives: happened
-- Errors: none
-- Locks: none
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.unit_happened
    @unit_id uniqueidentifier
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
    DECLARE @happened bit = 0;
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        IF EXISTS (SELECT 1 FROM dialoq.done_unit AS d WHERE d.unit_id = @unit_id) SET @happened = 1;
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT @happened AS happened;
END
GO
