-- Removes everything of Dialoq from a database and leaves the user's own tables. Refused if an object of the user's is
-- bound to one of ours, and before anything is removed if a table of the user's lives in our schema. Procedures, functions
-- and views of the user's in our schema go with it. The roles stay, with their members.
-- Errors: 53716
DECLARE @strangers nvarchar(max), @text nvarchar(2048);
SELECT @strangers = STRING_AGG(CAST(QUOTENAME(o.name) AS nvarchar(max)), N', ')
FROM sys.objects AS o
WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.type = 'U' AND o.name NOT IN (
    N'activated_task', N'broker', N'conversation_endpoint', N'conversation_priority', N'dead_letter', N'done_unit', N'dropped_work_queue',
    N'event_notification', N'installed', N'job', N'job_history', N'job_history_cut', N'message_type', N'queue_message',
    N'queue_monitor', N'queue_rollback', N'ready_group', N'receive_attempt', N'recheck_queue', N'retained_message', N'service',
    N'service_contract', N'service_contract_message_usage', N'service_contract_usage', N'service_queue', N'tick_failure',
    N'transmission', N'unique_job', N'unsettled', N'work_queue', N'work_rate', N'work_schedule', N'xml_schema_collection');
IF @strangers IS NOT NULL
BEGIN
    -- THROW takes a doubled % for one.
    SET @text = REPLACE(LEFT(CONCAT(N'schema dialoq cannot be removed, for it holds tables that are not the broker''s; ',
        N'nothing was removed; move them with ALTER SCHEMA ... TRANSFER, then uninstall: ', @strangers), 1000), N'%', N'%%');
    THROW 53716, @text, 1;
END
DECLARE @views nvarchar(max), @procedures nvarchar(max), @functions nvarchar(max);
SELECT @views = STRING_AGG(CAST(CONCAT(N'dialoq.', QUOTENAME(o.name)) AS nvarchar(max)), N', ')
FROM sys.objects AS o WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.type = 'V';
SELECT @procedures = STRING_AGG(CAST(CONCAT(N'dialoq.', QUOTENAME(o.name)) AS nvarchar(max)), N', ')
FROM sys.objects AS o WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.type = 'P';
SELECT @functions = STRING_AGG(CAST(CONCAT(N'dialoq.', QUOTENAME(o.name)) AS nvarchar(max)), N', ')
FROM sys.objects AS o WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.type IN ('FN', 'IF', 'TF');
IF @views IS NOT NULL EXEC(N'DROP VIEW ' + @views);
IF @procedures IS NOT NULL EXEC(N'DROP PROCEDURE ' + @procedures);
IF @functions IS NOT NULL EXEC(N'DROP FUNCTION ' + @functions);
DECLARE @types nvarchar(max), @tables nvarchar(max);
SELECT @types = STRING_AGG(CAST(CONCAT(N'DROP TYPE dialoq.', QUOTENAME(t.name), N';') AS nvarchar(max)), N' ')
FROM sys.table_types AS t WHERE t.schema_id = SCHEMA_ID(N'dialoq');
SELECT @tables = STRING_AGG(CAST(CONCAT(N'dialoq.', QUOTENAME(o.name)) AS nvarchar(max)), N', ')
FROM sys.objects AS o WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.type = 'U';
IF @types IS NOT NULL EXEC(@types);
IF @tables IS NOT NULL EXEC(N'DROP TABLE ' + @tables);
DROP SEQUENCE IF EXISTS dialoq.next_job_id;
DROP SEQUENCE IF EXISTS dialoq.next_job_token;
DROP SCHEMA dialoq;
GO
