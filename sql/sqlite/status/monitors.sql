-- The queue monitors of every process, as the owner of the file last wrote them: one for each activation of a queue.
-- Takes: nothing
-- Gives: queue_id, host_name (NULL: all are on one host), process_id, state, max_queue_readers, readers_running, sessions_waiting
SELECT
    m.queue_id, NULL AS host_name, m.process_id, m.state, m.max_queue_readers, m.tasks_running AS readers_running,
    m.tasks_waiting AS sessions_waiting
FROM dialoq_queue_monitor AS m
ORDER BY m.process_id, m.queue_id
