-- Writes what a queue monitor sees.
-- Takes: ?1 monitor_id, ?2 queue_id, ?3 state, ?4 last_empty_rowset_time, ?5 last_activated_time, ?6 tasks_waiting, ?7 max_queue_readers, ?8 tasks_running, ?9 tasks_started_total, ?10 tasks_aborted_total, ?11 task_limit_reached_total, ?12 activation_errors_total, ?13 process_id, ?14 reported_at
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_queue_monitor (
    monitor_id, queue_id, state, last_empty_rowset_time, last_activated_time, tasks_waiting,
    max_queue_readers, tasks_running, tasks_started_total, tasks_aborted_total, task_limit_reached_total,
    activation_errors_total, process_id, reported_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
