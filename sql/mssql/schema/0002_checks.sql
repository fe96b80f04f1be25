-- What a column may hold, where a row that says nonsense would stop a background step or a read of every process; what a
-- step that failed leaves; and locks of rows only, however small a table is or however much one statement changes.

-- Names fold A to Z only (decision 0019).
UPDATE dialoq.service_queue
SET folded_name = TRANSLATE(
    name COLLATE Latin1_General_100_BIN2, N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz');
GO

-- Steps of tick that failed, one row for each endpoint, kept for a week: 0 is a change of definitions, -1 the rollbacks of
-- transactions that received.
CREATE TABLE dialoq.tick_failure (
    endpoint_id bigint NOT NULL PRIMARY KEY,
    failures int NOT NULL,
    error_number int NOT NULL,
    error_message nvarchar(4000) NULL,
    failed_at datetime2(6) NOT NULL
);
GO

-- A row that an earlier version took is brought into its range first, or the upgrade would fail for ever.
UPDATE dialoq.broker SET closed_retention_s = CASE WHEN closed_retention_s < 0 THEN 0 ELSE 2147483647 END
WHERE closed_retention_s NOT BETWEEN 0 AND 2147483647;
UPDATE dialoq.broker SET unconfirmed_retention_s = CASE WHEN unconfirmed_retention_s < 0 THEN 0 ELSE 2147483647 END
WHERE unconfirmed_retention_s NOT BETWEEN 0 AND 2147483647;
UPDATE dialoq.broker SET manual_now = CASE WHEN manual_now < '1900-01-01' THEN '1900-01-01' ELSE '9000-01-01' END
WHERE manual_now NOT BETWEEN '1900-01-01' AND '9000-01-01';
UPDATE dialoq.message_type SET validation = N'N' WHERE validation NOT IN (N'N', N'E', N'X', N'V', N'J', N'S');
UPDATE dialoq.conversation_priority SET priority = CASE WHEN priority < 1 THEN 1 ELSE 10 END
WHERE priority NOT BETWEEN 1 AND 10;
GO

ALTER TABLE dialoq.broker ADD CONSTRAINT broker_closed_retention
    CHECK (closed_retention_s BETWEEN 0 AND 2147483647);
ALTER TABLE dialoq.broker ADD CONSTRAINT broker_unconfirmed_retention
    CHECK (unconfirmed_retention_s BETWEEN 0 AND 2147483647);
ALTER TABLE dialoq.broker ADD CONSTRAINT broker_manual_now CHECK (manual_now BETWEEN '1900-01-01' AND '9000-01-01');
ALTER TABLE dialoq.message_type ADD
    CONSTRAINT message_type_validation CHECK (validation IN (N'N', N'E', N'X', N'V', N'J', N'S'));
ALTER TABLE dialoq.conversation_priority ADD CONSTRAINT conversation_priority_level CHECK (priority BETWEEN 1 AND 10);
GO

-- A verdict that an earlier version took from a caller as it was: the body counts as rejected.
UPDATE dialoq.transmission SET body_fault = N'-8430|the body was rejected, and the reason is not known'
WHERE DATALENGTH(body_fault) > 0 AND LEFT(body_fault, 6) COLLATE Latin1_General_100_BIN2 NOT IN (N'-8430|', N'-9615|');
ALTER TABLE dialoq.transmission ADD CONSTRAINT transmission_body_fault CHECK (
    DATALENGTH(body_fault) = 0 OR LEFT(body_fault, 6) COLLATE Latin1_General_100_BIN2 IN (N'-8430|', N'-9615|'));
GO

-- Every process tells them anew.
DELETE FROM dialoq.queue_monitor;
DELETE FROM dialoq.activated_task;
ALTER TABLE dialoq.queue_monitor ADD
    CONSTRAINT queue_monitor_tasks CHECK (
        tasks_waiting BETWEEN 0 AND 1000000000000 AND tasks_running BETWEEN 0 AND 1000000000000
        AND tasks_started_total BETWEEN 0 AND 1000000000000 AND tasks_aborted_total BETWEEN 0 AND 1000000000000
        AND task_limit_reached_total BETWEEN 0 AND 1000000000000
        AND activation_errors_total BETWEEN 0 AND 1000000000000 AND max_queue_readers >= 0);
GO

-- Page locks are not passed over by READPAST, and neither is a lock of the table, to which SQL Server escalates from about
-- 5,000 rows of one statement on. Without page locks an index can be rebuilt, but not reorganised.
IF @@VERSION NOT LIKE N'%Babelfish%'
BEGIN
    DECLARE @text nvarchar(max);
    SELECT @text = STRING_AGG(CAST(CONCAT(
        N'ALTER INDEX ALL ON dialoq.', t.name, N' SET (ALLOW_PAGE_LOCKS = OFF); ',
        N'ALTER TABLE dialoq.', t.name, N' SET (LOCK_ESCALATION = DISABLE);') AS nvarchar(max)), N' ')
    FROM sys.tables AS t
    WHERE t.schema_id = SCHEMA_ID(N'dialoq') AND t.name IN (
        N'activated_task', N'conversation_endpoint', N'done_unit', N'event_notification', N'queue_message', N'queue_monitor',
        N'queue_rollback', N'ready_group', N'receive_attempt', N'retained_message', N'tick_failure', N'transmission',
        N'unsettled');
    EXEC(@text);
END
GO
