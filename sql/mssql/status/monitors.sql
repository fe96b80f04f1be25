-- The queue monitors of every live process: one for each activation of a queue.
-- Takes: nothing
-- Gives: queue_id, host_name, process_id, state, max_queue_readers, readers_running, sessions_waiting
SELECT
    m.queue_id, m.host_name, m.process_id, m.state, CAST(m.max_queue_readers AS bigint) AS max_queue_readers,
    m.tasks_running AS readers_running, m.tasks_waiting AS sessions_waiting
FROM dialoq.sys_dm_broker_queue_monitors AS m
ORDER BY m.host_name, m.process_id, m.queue_id
