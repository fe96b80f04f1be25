-- Tells other processes what a commit notices. SQL Server has nothing to say it with: processes ask with look. Here so that
-- every store has the same verbs.
-- Takes: words separated by spaces
-- Gives: nothing
-- Errors: none
-- Locks: none
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.notify_processes
    @notices nvarchar(max)
AS
BEGIN
    SET NOCOUNT ON;
    SET ROWCOUNT 0;
    SET LOCK_TIMEOUT -1;
    SET ANSI_WARNINGS, ANSI_PADDING, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
    SET NUMERIC_ROUNDABORT OFF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    IF XACT_STATE() = -1 THROW 60020, N'the transaction can only be rolled back: an earlier statement of it failed', 1;
END
GO
