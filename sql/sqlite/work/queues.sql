-- Every work queue with the number of its jobs by state. A scheduled job whose time has come is ready; a taken job whose
-- lease is over is lost.
-- Takes: ?1 now
-- Gives: name, is_enabled, work_order, scheduled, ready, taken, lost, dead, oldest_ready_us, finished
SELECT
    q.name, q.is_enabled, q.work_order,
    coalesce(sum(j.state = 0 AND j.due_at > ?1), 0) AS scheduled,
    coalesce(sum(j.state = 1 OR j.state = 0 AND j.due_at <= ?1), 0) AS ready,
    coalesce(sum(j.state = 2 AND (j.due_at IS NULL OR j.due_at > ?1)), 0) AS taken,
    coalesce(sum(j.state = 2 AND j.due_at <= ?1), 0) AS lost,
    coalesce(sum(j.state = 3), 0) AS dead,
    min(CASE WHEN j.state = 1 OR j.state = 0 AND j.due_at <= ?1 THEN j.pushed_at END) AS oldest_ready_us,
    (SELECT count(*) FROM dialoq_job_history AS h WHERE h.queue_id = q.queue_id) AS finished
FROM dialoq_work_queue AS q
LEFT JOIN dialoq_job AS j ON j.queue_id = q.queue_id
GROUP BY q.queue_id
ORDER BY q.name COLLATE NOCASE, q.queue_id
