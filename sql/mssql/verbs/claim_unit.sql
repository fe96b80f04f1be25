-- The first thing in the transaction of a unit that has an id: a unit of that id happens once. Waits for another attempt
-- at the same unit to end.
-- Takes: the unit's id
-- Gives: is_new
-- Errors: 51205, 60005
-- Locks: the unit's id
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.claim_unit
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
    DECLARE @is_new bit = 1, @got int, @resource nvarchar(255) = CONCAT(N'dialoq:unit:', @unit_id);
    BEGIN TRY
        IF @unit_id IS NULL THROW 60005, N'the id of the unit is NULL; give one', 1;
        IF @is_own = 1 BEGIN TRANSACTION;
        EXEC @got = sp_getapplock
            @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1,
            @DbPrincipal = N'dialoq_user';
        IF @got < 0
            THROW 51205, N'the transaction waited for another attempt at its unit: a deadlock; roll back and run it again', 1;
        IF EXISTS (SELECT 1 FROM dialoq.done_unit AS d WHERE d.unit_id = @unit_id)
            SET @is_new = 0;
        ELSE
            INSERT INTO dialoq.done_unit (unit_id, done_at) VALUES (@unit_id, SYSUTCDATETIME());
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT @is_new AS is_new;
END
GO
