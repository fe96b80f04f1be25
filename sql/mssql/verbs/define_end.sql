-- Ends a change of definitions: what waits to be delivered goes where it now can, and why the rest waits is brought up to
-- date; the version is raised.
-- Takes: nothing
-- Gives: catalog_version, notices
-- Errors: none of its own
-- Locks: the groups of what can be delivered, without waiting for those that others hold
-- Called by: dialoq_admin
CREATE PROCEDURE dialoq.define_end
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
    DECLARE @notices nvarchar(max) = N' c', @version bigint;
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        EXEC dialoq.revisit_outboxes @notices OUTPUT;
        UPDATE dialoq.broker SET catalog_version = catalog_version + 1 WHERE singleton = 1;
        SELECT @version = b.catalog_version FROM dialoq.broker AS b WHERE b.singleton = 1;
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT @version AS catalog_version, dialoq.distinct_notices(@notices) AS notices;
END
GO
