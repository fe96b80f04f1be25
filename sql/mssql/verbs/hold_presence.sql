-- Presence: a process is alive as long as a session of its own holds the lock of its id. Shared, so that a new session
-- need not wait until the server has detected the end of the old one. To test whether a process is gone, test
-- whether the lock could be taken exclusively.
-- Takes: process: the id that a process made for itself
-- Gives: nothing
-- Errors: 51205 if the server ends the wait for a deadlock, 60018 after 30 s
-- Locks: the process's lock, until the session ends
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.hold_presence
    @process uniqueidentifier
AS
BEGIN
    -- <settings>
    IF @process IS NULL THROW 60005, N'the id of the process is NULL; give one', 1;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:process:', LOWER(CAST(@process AS nvarchar(36)))), @got int;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Shared', @LockOwner = N'Session', @LockTimeout = 30000,
        @DbPrincipal = N'dialoq_user';
    IF @got = -1 THROW 60018, N'the lock of the process was not had within 30 s; another session holds it alone', 1;
    IF @got < 0 THROW 51205, N'the lock of the process was refused', 1;
END
GO
