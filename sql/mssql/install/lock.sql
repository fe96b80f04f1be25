-- Lets one installer in at a time, until the end of its transaction; waits for it, 60 seconds at most. Any user of the
-- database may hold this lock, because our roles do not exist yet; then the error names the session that holds it.
-- A table that is to be replaced may be in use by an open transaction. Every other session that needs the table waits behind
-- this one, so each wait for a lock ends after two seconds.
-- Takes: nothing
-- Gives: nothing
-- Errors: 60010 if another session holds the lock for a minute
DECLARE @got int, @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':install'), @text nvarchar(2048), @session int;
EXEC @got = sp_getapplock
    @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 60000;
IF @got = -1
BEGIN
    SET @text = CONCAT(N'another session; SELECT request_session_id FROM sys.dm_tran_locks WHERE resource_type = ',
        N'''APPLICATION'' AND resource_description LIKE ''%', @resource, N'%'' names it');
    IF SERVERPROPERTY('Babelfish') IS NULL
        IF HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER STATE') = 1
        BEGIN
            EXEC sp_executesql N'SELECT TOP (1) @session = l.request_session_id FROM sys.dm_tran_locks AS l
                WHERE l.resource_type = ''APPLICATION'' AND l.request_status = ''GRANT'' AND l.resource_database_id = DB_ID()
                    AND l.resource_description LIKE CONCAT(N''%'', @resource, N''%'')',
                N'@resource nvarchar(255), @session int OUTPUT', @resource = @resource, @session = @session OUTPUT;
            IF @session IS NOT NULL SET @text = CONCAT(N'session ', @session);
        END
    -- THROW takes a doubled % for one.
    SET @text = REPLACE(
        CONCAT(N'the lock of installers was not had within 60 s: held by ', @text, N'; end it, then install again'), N'%', N'%%');
    THROW 60010, @text, 1;
END
IF @got < 0 THROW 51205, N'the installation met another one and was ended as a deadlock; run it again', 1;
SET LOCK_TIMEOUT 2000;
