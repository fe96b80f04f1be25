-- Every work queue with the number of its jobs by state. A scheduled job whose time has come is ready; a taken job whose
-- lease is over is lost.
-- Takes: $1 now
-- Gives: queue_id, name, is_enabled, work_order, scheduled, ready, taken, lost, dead, oldest_ready_us, finished
SELECT
    q.queue_id, q.name, q.is_enabled, q.work_order,
    pg_catalog.count(*) FILTER (WHERE j.state = 0 AND j.due_at > $1::bigint) AS scheduled,
    pg_catalog.count(*) FILTER (WHERE j.state = 1 OR j.state = 0 AND j.due_at <= $1::bigint) AS ready,
    pg_catalog.count(*) FILTER (WHERE j.state = 2 AND (j.due_at IS NULL OR j.due_at > $1::bigint)) AS taken,
    pg_catalog.count(*) FILTER (WHERE j.state = 2 AND j.due_at <= $1::bigint) AS lost,
    pg_catalog.count(*) FILTER (WHERE j.state = 3) AS dead,
    pg_catalog.min(j.pushed_at) FILTER (WHERE j.state = 1 OR j.state = 0 AND j.due_at <= $1::bigint) AS oldest_ready_us,
    (SELECT pg_catalog.count(*) FROM dialoq.read_job_history AS h WHERE h.queue_id = q.queue_id) AS finished
FROM dialoq.read_work_queues AS q
LEFT JOIN dialoq.read_jobs AS j ON j.queue_id = q.queue_id
GROUP BY q.queue_id, q.name, q.is_enabled, q.work_order
ORDER BY pg_catalog.lower(q.name), q.queue_id
