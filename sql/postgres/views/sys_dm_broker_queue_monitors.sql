-- sys.dm_broker_queue_monitors with the counters of Broker Activation, as the live processes last wrote them
CREATE VIEW dialoq.sys_dm_broker_queue_monitors AS
SELECT
    1 AS database_id, m.queue_id, m.state, m.last_empty_rowset_time, m.last_activated_time, m.tasks_waiting,
    m.max_queue_readers, m.tasks_running, m.tasks_started_total, m.tasks_aborted_total, m.task_limit_reached_total,
    m.activation_errors_total, m.process_id, m.reported_at, m.host_name
FROM dialoq.queue_monitor AS m
JOIN dialoq.live_process AS l ON l.process = m.process;
