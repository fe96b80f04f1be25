-- Sends notices to other processes. SQL Server has no NOTIFY, so this does nothing, and processes call dialoq.poll. It is here
-- because every database has the same verbs.
-- Takes: notices separated by spaces
-- Gives: nothing
-- Errors: none
-- Locks: none
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.notify_processes
    @notices nvarchar(max)
AS
BEGIN
    -- <settings>
    RETURN;
END
GO
