-- Ends an attempt badly: counts the rollback of a transaction that received and is gone. Does nothing if somebody has
-- counted it already.
-- Takes: the attempt id
-- Gives: notices
-- Errors: none
-- Locks: its groups if the queue has quarantine, without waiting; the definitions if a queue is disabled by this
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.count_rollback
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
    DECLARE @notices nvarchar(max);
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        EXEC dialoq.count_attempt @attempt_id, @notices OUTPUT;
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
