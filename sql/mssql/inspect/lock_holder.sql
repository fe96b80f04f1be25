-- The session that holds the lock of a conversation group (rules/group_lock.sql). The server shows locks only to a login with VIEW
-- SERVER STATE, and the first 32 characters of a lock's name: 'dialoq:group:' and half of the id. To other logins, and on
-- Babelfish, the row says only that the group is held.
-- Takes: @P1 conversation_group_id
-- Gives: session_id, prepared (always NULL), process_id, host_name, program_name, principal, since (microseconds of UTC); no row if the group is free
DECLARE @group uniqueidentifier = @P1;
DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:group:', @group);
DECLARE @holder TABLE (
    session_id bigint NULL, process_id bigint NULL, host_name nvarchar(256) NULL, program_name nvarchar(256) NULL,
    principal nvarchar(256) NULL, since bigint NULL);
DECLARE @is_held bit = CASE WHEN APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Session') = 0 THEN 1 ELSE 0 END;
IF @is_held = 1 AND @@VERSION NOT LIKE N'%Babelfish%' AND HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER STATE') = 1
    INSERT INTO @holder (session_id, process_id, host_name, program_name, principal, since)
    EXEC sp_executesql N'
        SELECT TOP (1)
            s.session_id, s.host_process_id, s.host_name, s.program_name, s.login_name,
            DATEDIFF_BIG(microsecond, ''1970-01-01'',
                DATEADD(minute, DATEDIFF(minute, SYSDATETIME(), SYSUTCDATETIME()), MIN(t.transaction_begin_time)))
        FROM sys.dm_tran_locks AS l
        JOIN sys.dm_exec_sessions AS s ON s.session_id = l.request_session_id
        LEFT JOIN sys.dm_tran_session_transactions AS o ON o.session_id = s.session_id
        LEFT JOIN sys.dm_tran_active_transactions AS t ON t.transaction_id = o.transaction_id
        WHERE l.resource_type = N''APPLICATION'' AND l.resource_database_id = DB_ID() AND l.request_status = N''GRANT''
            AND CHARINDEX(CONCAT(N'':['', LEFT(@resource, 32), N'']:''), l.resource_description) > 0
        GROUP BY s.session_id, s.host_process_id, s.host_name, s.program_name, s.login_name
        ORDER BY MIN(t.transaction_begin_time), s.session_id',
        N'@resource nvarchar(255)', @resource = @resource;
IF @is_held = 1 AND NOT EXISTS (SELECT 1 FROM @holder)
    INSERT INTO @holder (session_id) VALUES (NULL);
SELECT
    h.session_id, CAST(NULL AS nvarchar(200)) AS prepared, h.process_id, h.host_name, h.program_name, h.principal, h.since
FROM @holder AS h
