-- Tells other processes what a commit said. SQL Server has nothing to say it with: processes ask with look. Here so that
-- every store has the same verbs.
-- Takes: words separated by spaces
-- Gives: nothing
-- Errors: none
-- Locks: none
IF OBJECT_ID(N'dialoq.tell') IS NOT NULL DROP PROCEDURE dialoq.tell
GO
CREATE PROCEDURE dialoq.tell
    @words nvarchar(max)
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
