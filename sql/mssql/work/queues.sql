-- Every work queue with the number of its jobs by state. A scheduled job whose time has come is ready; a taken job whose
-- lease is over is lost.
-- Takes: @P1 now
-- Gives: queue_id, name, is_enabled, work_order, scheduled, ready, taken, lost, dead, oldest_ready_us, finished
SELECT
    q.queue_id, q.name, q.is_enabled, q.work_order,
    COALESCE(SUM(j.is_scheduled), 0) AS scheduled, COALESCE(SUM(j.is_ready), 0) AS ready,
    COALESCE(SUM(j.is_taken), 0) AS taken, COALESCE(SUM(j.is_lost), 0) AS lost, COALESCE(SUM(j.is_dead), 0) AS dead,
    MIN(CASE WHEN j.is_ready = 1 THEN j.pushed_at END) AS oldest_ready_us, MAX(COALESCE(f.finished, 0)) AS finished
FROM dialoq.read_work_queues AS q
LEFT JOIN (
    SELECT
        r.queue_id, r.pushed_at,
        CAST(CASE WHEN r.state = 0 AND r.due_at > CAST(@P1 AS bigint) THEN 1 ELSE 0 END AS bigint) AS is_scheduled,
        CAST(CASE WHEN r.state = 1 OR r.state = 0 AND r.due_at <= CAST(@P1 AS bigint) THEN 1 ELSE 0 END AS bigint) AS is_ready,
        CAST(CASE WHEN r.state = 2 AND (r.due_at IS NULL OR r.due_at > CAST(@P1 AS bigint)) THEN 1 ELSE 0 END AS bigint)
            AS is_taken,
        CAST(CASE WHEN r.state = 2 AND r.due_at <= CAST(@P1 AS bigint) THEN 1 ELSE 0 END AS bigint) AS is_lost,
        CAST(CASE WHEN r.state = 3 THEN 1 ELSE 0 END AS bigint) AS is_dead
    FROM dialoq.read_jobs AS r
) AS j ON j.queue_id = q.queue_id
LEFT JOIN (
    SELECT h.queue_id, COUNT_BIG(*) AS finished FROM dialoq.read_job_history AS h GROUP BY h.queue_id
) AS f ON f.queue_id = q.queue_id
GROUP BY q.queue_id, q.name, q.is_enabled, q.work_order
ORDER BY LOWER(q.name), q.queue_id
