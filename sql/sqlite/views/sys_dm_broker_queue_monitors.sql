-- sys.dm_broker_queue_monitors with the counters of Broker Activation, as the owner of the file last wrote them
CREATE VIEW sys_dm_broker_queue_monitors AS
SELECT
    1 AS database_id, queue_id, state,
    datetime(last_empty_rowset_time / 1000000, 'unixepoch') || printf('.%06d', last_empty_rowset_time % 1000000) AS last_empty_rowset_time,
    datetime(last_activated_time / 1000000, 'unixepoch') || printf('.%06d', last_activated_time % 1000000) AS last_activated_time,
    tasks_waiting, max_queue_readers, tasks_running, tasks_started_total, tasks_aborted_total,
    task_limit_reached_total, activation_errors_total, process_id,
    datetime(reported_at / 1000000, 'unixepoch') || printf('.%06d', reported_at % 1000000) AS reported_at
FROM dialoq_queue_monitor;
