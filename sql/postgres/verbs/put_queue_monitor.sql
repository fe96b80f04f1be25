-- The readers of a process: writes the row of a queue monitor or of a reader, or removes it; delete_process
-- removes all of a process.
-- Takes: the columns of queue_monitor but reported_at, of activated_task; or their keys
-- Gives: nothing
-- Errors: 60005; 1222 if another session holds the row. Only the process itself writes its rows, so nothing waits long for
-- one of them but behind a session that holds it on purpose.
-- Locks: the row, 100 ms at most
-- Called by: dialoq_user (put_queue_monitor, delete_queue_monitor, put_activated_task, delete_activated_task,
--     delete_process)
CREATE FUNCTION dialoq.put_queue_monitor(
    p_process uuid, p_monitor_id bigint, p_queue_id integer, p_state text, p_last_empty_rowset_time timestamptz,
    p_last_activated_time timestamptz, p_tasks_waiting bigint, p_max_queue_readers integer, p_tasks_running bigint,
    p_tasks_started_total bigint, p_tasks_aborted_total bigint, p_task_limit_reached_total bigint,
    p_activation_errors_total bigint, p_host_name text, p_process_id bigint
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    INSERT INTO dialoq.queue_monitor AS m (
        process, monitor_id, queue_id, state, last_empty_rowset_time, last_activated_time, tasks_waiting,
        max_queue_readers, tasks_running, tasks_started_total, tasks_aborted_total, task_limit_reached_total,
        activation_errors_total, host_name, process_id, reported_at
    ) VALUES (
        p_process, p_monitor_id, p_queue_id, p_state, p_last_empty_rowset_time, p_last_activated_time, p_tasks_waiting,
        p_max_queue_readers, p_tasks_running, p_tasks_started_total, p_tasks_aborted_total, p_task_limit_reached_total,
        p_activation_errors_total, p_host_name, p_process_id, clock_timestamp()
    ) ON CONFLICT (process, monitor_id) DO UPDATE SET
        queue_id = excluded.queue_id, state = excluded.state, last_empty_rowset_time = excluded.last_empty_rowset_time,
        last_activated_time = excluded.last_activated_time, tasks_waiting = excluded.tasks_waiting,
        max_queue_readers = excluded.max_queue_readers, tasks_running = excluded.tasks_running,
        tasks_started_total = excluded.tasks_started_total, tasks_aborted_total = excluded.tasks_aborted_total,
        task_limit_reached_total = excluded.task_limit_reached_total,
        activation_errors_total = excluded.activation_errors_total, host_name = excluded.host_name,
        process_id = excluded.process_id, reported_at = excluded.reported_at;
EXCEPTION
    WHEN data_exception OR integrity_constraint_violation THEN
        PERFORM dialoq.refuse_row('put_queue_monitor', SQLERRM);
    WHEN lock_not_available THEN
        PERFORM dialoq.refuse_held_row('put_queue_monitor', p_process);
END
$$;

CREATE FUNCTION dialoq.delete_queue_monitor(p_process uuid, p_monitor_id bigint)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    DELETE FROM dialoq.queue_monitor WHERE process = p_process AND monitor_id = p_monitor_id;
EXCEPTION WHEN lock_not_available THEN
    PERFORM dialoq.refuse_held_row('delete_queue_monitor', p_process);
END
$$;

CREATE FUNCTION dialoq.put_activated_task(
    p_process uuid, p_task_id bigint, p_monitor_id bigint, p_queue_id integer, p_procedure_name text,
    p_process_id bigint, p_started_at timestamptz
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    INSERT INTO dialoq.activated_task AS a (
        process, task_id, monitor_id, queue_id, procedure_name, process_id, started_at
    ) VALUES (
        p_process, p_task_id, p_monitor_id, p_queue_id, p_procedure_name, p_process_id, p_started_at
    ) ON CONFLICT (process, task_id) DO UPDATE SET
        monitor_id = excluded.monitor_id, queue_id = excluded.queue_id, procedure_name = excluded.procedure_name,
        process_id = excluded.process_id, started_at = excluded.started_at;
EXCEPTION
    WHEN data_exception OR integrity_constraint_violation THEN
        PERFORM dialoq.refuse_row('put_activated_task', SQLERRM);
    WHEN lock_not_available THEN
        PERFORM dialoq.refuse_held_row('put_activated_task', p_process);
END
$$;

CREATE FUNCTION dialoq.delete_activated_task(p_process uuid, p_task_id bigint)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    DELETE FROM dialoq.activated_task WHERE process = p_process AND task_id = p_task_id;
EXCEPTION WHEN lock_not_available THEN
    PERFORM dialoq.refuse_held_row('delete_activated_task', p_process);
END
$$;

CREATE FUNCTION dialoq.delete_process(p_process uuid)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
BEGIN
    DELETE FROM dialoq.activated_task WHERE process = p_process;
    DELETE FROM dialoq.queue_monitor WHERE process = p_process;
EXCEPTION WHEN lock_not_available THEN
    PERFORM dialoq.refuse_held_row('delete_process', p_process);
END
$$;

-- Refuses to wait for a row of a process.
CREATE FUNCTION dialoq.refuse_held_row(p_function text, p_process uuid)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM dialoq.fail(1222, format('%s: another session holds a row of process %s in an open transaction; end that session',
        p_function, p_process));
END
$$;
