-- Every queue, with its readers as the owner of the file last wrote them. Dead letters have the name that their queue had.
-- Takes: nothing
-- Gives: queue_id, name, is_receive_enabled, is_enqueue_enabled, is_retention_enabled, is_activation_enabled, activation_procedure, max_queue_readers, readers_running, sessions_waiting, off_since (microseconds of UTC), off_by, off_reason, dead_letters
SELECT
    q.queue_id, q.name, q.is_receive_enabled, q.is_enqueue_enabled, q.is_retention_enabled,
    coalesce(q.is_activation_enabled, 0) AS is_activation_enabled, q.activation_procedure,
    coalesce(m.max_queue_readers, q.max_queue_readers) AS max_queue_readers,
    m.tasks_running AS readers_running, m.tasks_waiting AS sessions_waiting,
    q.off_since, q.off_by, q.off_reason,
    coalesce(d.dead_letters, 0) AS dead_letters
FROM dialoq_service_queue AS q
LEFT JOIN (
    SELECT
        queue_id, max(max_queue_readers) AS max_queue_readers, sum(tasks_running) AS tasks_running,
        max(tasks_waiting) AS tasks_waiting
    FROM dialoq_queue_monitor
    GROUP BY queue_id
) AS m ON m.queue_id = q.queue_id
LEFT JOIN (
    SELECT queue_name COLLATE NOCASE AS queue_name, count(*) AS dead_letters FROM dialoq_dead_letter GROUP BY queue_name COLLATE NOCASE
) AS d ON d.queue_name = q.name COLLATE NOCASE
ORDER BY q.name COLLATE NOCASE, q.queue_id
