-- Every queue, with its readers as the processes last wrote them. The limit of readers is one for all processes.
-- Dead letters have the name that their queue had.
-- Takes: nothing
-- Gives: queue_id, name, is_receive_enabled, is_enqueue_enabled, is_retention_enabled, is_activation_enabled, activation_procedure, max_queue_readers, readers_running, sessions_waiting, off_since (microseconds of UTC), off_by, off_reason, dead_letters
SELECT
    q.queue_id, q.name, q.is_receive_enabled, q.is_enqueue_enabled, q.is_retention_enabled,
    COALESCE(q.is_activation_enabled, CAST(0 AS bit)) AS is_activation_enabled, q.activation_procedure,
    COALESCE(m.max_queue_readers, q.max_queue_readers) AS max_queue_readers,
    m.tasks_running AS readers_running, m.tasks_waiting AS sessions_waiting,
    DATEDIFF_BIG(microsecond, '1970-01-01', q.off_since) AS off_since, q.off_by, q.off_reason,
    COALESCE(d.dead_letters, 0) AS dead_letters
FROM dialoq.read_service_queues AS q
LEFT JOIN (
    SELECT
        queue_id, MAX(max_queue_readers) AS max_queue_readers, SUM(CAST(tasks_running AS bigint)) AS tasks_running,
        SUM(CAST(tasks_waiting AS bigint)) AS tasks_waiting
    FROM dialoq.sys_dm_broker_queue_monitors
    GROUP BY queue_id
) AS m ON m.queue_id = q.queue_id
LEFT JOIN (
    SELECT n.folded_name, COUNT_BIG(*) AS dead_letters
    FROM (
        SELECT TRANSLATE(l.queue_name COLLATE Latin1_General_100_BIN2,
            N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz') AS folded_name
        FROM dialoq.dead_letters AS l
    ) AS n
    GROUP BY n.folded_name
) AS d ON d.folded_name = TRANSLATE(q.name COLLATE Latin1_General_100_BIN2,
    N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz')
ORDER BY LOWER(q.name), q.queue_id
