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
END
GO
