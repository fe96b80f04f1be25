-- Every queue, with its readers as the processes last reported them. The limit of readers is one for all processes.
-- Dead letters have the name that their queue had.
-- Takes: nothing
-- Gives: queue_id, name, is_receive_enabled, is_enqueue_enabled, is_retention_enabled, is_activation_enabled, activation_procedure, max_queue_readers, readers_running, sessions_waiting, off_since (microseconds of UTC), off_by, off_reason, dead_letters
SELECT
    q.queue_id, q.name, q.is_receive_enabled, q.is_enqueue_enabled, q.is_retention_enabled,
    coalesce(q.is_activation_enabled, false) AS is_activation_enabled, q.activation_procedure,
    coalesce(m.max_queue_readers, q.max_queue_readers) AS max_queue_readers,
    m.tasks_running AS readers_running, m.tasks_waiting AS sessions_waiting,
    (extract(epoch FROM q.off_since) * 1000000.0)::bigint AS off_since, q.off_by, q.off_reason,
    coalesce(d.dead_letters, 0) AS dead_letters
FROM dialoq.read_service_queues AS q
LEFT JOIN (
    SELECT
        queue_id, pg_catalog.max(max_queue_readers) AS max_queue_readers, pg_catalog.sum(tasks_running)::bigint AS tasks_running,
        pg_catalog.sum(tasks_waiting)::bigint AS tasks_waiting
    FROM dialoq.sys_dm_broker_queue_monitors
    GROUP BY queue_id
) AS m ON m.queue_id = q.queue_id
LEFT JOIN (
    SELECT pg_catalog.lower(l.queue_name COLLATE "C") AS folded_name, pg_catalog.count(*) AS dead_letters
    FROM dialoq.dead_letters AS l
    GROUP BY pg_catalog.lower(l.queue_name COLLATE "C")
) AS d ON d.folded_name = pg_catalog.lower(q.name COLLATE "C")
ORDER BY pg_catalog.lower(q.name), q.queue_id
