-- The readers of a process: writes the row of a queue monitor or of a reader, or removes it; delete_process
-- removes all of a process. Only a session that holds the presence of the process (hold_presence) may do so.
-- Takes: the columns of queue_monitor but reported_at, of activated_task; or their keys
-- Gives: nothing
-- Errors: 60005; 1222 if another session holds the row. Only the process itself writes its rows, so nothing waits long for
-- one of them but behind a session that holds it on purpose.
-- Locks: the row, 100 ms at most
-- Called by: dialoq_user (put_queue_monitor, delete_queue_monitor, put_activated_task, delete_activated_task,
--     delete_process)
CREATE PROCEDURE dialoq.put_queue_monitor
    @process uniqueidentifier, @monitor_id bigint, @queue_id int, @state nvarchar(64),
    @last_empty_rowset_time datetime2(6), @last_activated_time datetime2(6), @tasks_waiting bigint,
    @max_queue_readers int, @tasks_running bigint, @tasks_started_total bigint, @tasks_aborted_total bigint,
    @task_limit_reached_total bigint, @activation_errors_total bigint, @host_name nvarchar(256), @process_id bigint
AS
BEGIN
    -- <presence>
    IF @process IS NULL OR @monitor_id IS NULL OR @queue_id IS NULL OR @state IS NULL OR @host_name IS NULL OR @process_id IS NULL
        OR @tasks_waiting IS NULL OR @tasks_waiting NOT BETWEEN 0 AND 1000000000000
        OR @tasks_running IS NULL OR @tasks_running NOT BETWEEN 0 AND 1000000000000
        OR @tasks_started_total IS NULL OR @tasks_started_total NOT BETWEEN 0 AND 1000000000000
        OR @tasks_aborted_total IS NULL OR @tasks_aborted_total NOT BETWEEN 0 AND 1000000000000
        OR @task_limit_reached_total IS NULL OR @task_limit_reached_total NOT BETWEEN 0 AND 1000000000000
        OR @activation_errors_total IS NULL OR @activation_errors_total NOT BETWEEN 0 AND 1000000000000
        OR @max_queue_readers IS NULL OR @max_queue_readers < 0
        THROW 60005, N'a number of the queue monitor is NULL or out of range; it must be 0 to 1000000000000', 1;
    UPDATE m SET
        queue_id = @queue_id, state = @state, last_empty_rowset_time = @last_empty_rowset_time,
        last_activated_time = @last_activated_time, tasks_waiting = @tasks_waiting,
        max_queue_readers = @max_queue_readers, tasks_running = @tasks_running,
        tasks_started_total = @tasks_started_total, tasks_aborted_total = @tasks_aborted_total,
        task_limit_reached_total = @task_limit_reached_total, activation_errors_total = @activation_errors_total,
        host_name = @host_name, process_id = @process_id, reported_at = SYSUTCDATETIME()
    FROM dialoq.queue_monitor AS m WITH (ROWLOCK, INDEX (queue_monitor_process), FORCESEEK)
    WHERE m.process = @process AND m.monitor_id = @monitor_id;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.queue_monitor (
            process, monitor_id, queue_id, state, last_empty_rowset_time, last_activated_time, tasks_waiting,
            max_queue_readers, tasks_running, tasks_started_total, tasks_aborted_total, task_limit_reached_total,
            activation_errors_total, host_name, process_id, reported_at
        ) VALUES (
            @process, @monitor_id, @queue_id, @state, @last_empty_rowset_time, @last_activated_time, @tasks_waiting,
            @max_queue_readers, @tasks_running, @tasks_started_total, @tasks_aborted_total,
            @task_limit_reached_total, @activation_errors_total, @host_name, @process_id, SYSUTCDATETIME()
        );
END
GO
CREATE PROCEDURE dialoq.delete_queue_monitor
    @process uniqueidentifier, @monitor_id bigint
AS
BEGIN
    -- <presence>
    DELETE FROM m FROM dialoq.queue_monitor AS m WITH (ROWLOCK, INDEX (queue_monitor_process), FORCESEEK)
    WHERE m.process = @process AND m.monitor_id = @monitor_id;
END
GO
CREATE PROCEDURE dialoq.put_activated_task
    @process uniqueidentifier, @task_id bigint, @monitor_id bigint, @queue_id int, @procedure_name nvarchar(1024),
    @process_id bigint, @started_at datetime2(6)
AS
BEGIN
    -- <presence>
    IF @process IS NULL OR @task_id IS NULL OR @monitor_id IS NULL OR @queue_id IS NULL OR @procedure_name IS NULL
        OR @process_id IS NULL OR @started_at IS NULL
        THROW 60005, N'a column of the activated task is NULL; all of them are needed', 1;
    UPDATE t SET
        monitor_id = @monitor_id, queue_id = @queue_id, procedure_name = @procedure_name, process_id = @process_id,
        started_at = @started_at
    FROM dialoq.activated_task AS t WITH (ROWLOCK, INDEX (activated_task_process), FORCESEEK)
    WHERE t.process = @process AND t.task_id = @task_id;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.activated_task (
            process, task_id, monitor_id, queue_id, procedure_name, process_id, started_at
        ) VALUES (
            @process, @task_id, @monitor_id, @queue_id, @procedure_name, @process_id, @started_at
        );
END
GO
CREATE PROCEDURE dialoq.delete_activated_task
    @process uniqueidentifier, @task_id bigint
AS
BEGIN
    -- <presence>
    DELETE FROM t FROM dialoq.activated_task AS t WITH (ROWLOCK, INDEX (activated_task_process), FORCESEEK)
    WHERE t.process = @process AND t.task_id = @task_id;
END
GO
CREATE PROCEDURE dialoq.delete_process
    @process uniqueidentifier
AS
BEGIN
    -- <presence>
    DELETE FROM t FROM dialoq.activated_task AS t WITH (ROWLOCK, INDEX (activated_task_process), FORCESEEK)
    WHERE t.process = @process;
    DELETE FROM m FROM dialoq.queue_monitor AS m WITH (ROWLOCK, INDEX (queue_monitor_process), FORCESEEK)
    WHERE m.process = @process;
END
GO
