-- Work queues with jobs that need a look, in one pass over the jobs. A job is ready since its push, its last failure or the time it was
-- due.
-- Takes: $1 now, $2 the moment before which a lease must have ended, and jobs must have become ready
-- Gives: subject (the work queue), is_enabled, dead, dead_since, lost, lost_since, ready, ready_since, waiting (jobs ready since before
--     that moment), waiting_since, is_idle (no job is taken now, none was since that moment, and in a strict queue no failed one pauses); times in microseconds
SELECT
    q.name AS subject, q.is_enabled, j.dead, j.dead_since, j.lost, j.lost_since, j.ready, j.ready_since, j.waiting, j.waiting_since,
    j.takings = 0 AND NOT (q.work_order = 'FIFO_STRICT' AND j.pausing > 0) AND NOT EXISTS (
        SELECT
        FROM (
            SELECT h.finished_as, h.finished_at FROM dialoq.read_job_history AS h
            WHERE h.queue_id = q.queue_id ORDER BY h.finish_number DESC LIMIT 100) AS f
        WHERE f.finished_as = 4 AND f.finished_at >= $2::bigint) AS is_idle
FROM (
    SELECT
        r.queue_id,
        pg_catalog.count(*) FILTER (WHERE r.state = 3) AS dead,
        pg_catalog.min(coalesce(r.failed_at, r.pushed_at)) FILTER (WHERE r.state = 3) AS dead_since,
        pg_catalog.count(*) FILTER (WHERE r.state = 2 AND r.due_at < $2::bigint) AS lost,
        pg_catalog.min(r.due_at) FILTER (WHERE r.state = 2 AND r.due_at < $2::bigint) AS lost_since,
        pg_catalog.count(*) FILTER (WHERE r.state = 1 OR r.ready_at <= $1::bigint) AS ready,
        pg_catalog.min(r.ready_at) FILTER (WHERE r.state = 1 OR r.ready_at <= $1::bigint) AS ready_since,
        pg_catalog.count(*) FILTER (WHERE r.ready_at < $2::bigint) AS waiting,
        pg_catalog.min(r.ready_at) FILTER (WHERE r.ready_at < $2::bigint) AS waiting_since,
        pg_catalog.count(*) FILTER (
            WHERE r.state = 2 AND (r.due_at IS NULL OR r.due_at > $1::bigint) OR r.taken_at >= $2::bigint) AS takings,
        pg_catalog.count(*) FILTER (WHERE r.state = 0 AND r.attempts > 0 AND r.due_at > $1::bigint) AS pausing
    FROM (
        SELECT
            a.queue_id, a.state, a.due_at, a.pushed_at, a.taken_at, a.failed_at, a.attempts,
            CASE a.state WHEN 0 THEN a.due_at WHEN 1 THEN greatest(a.pushed_at, a.taken_at, a.failed_at) END AS ready_at
        FROM dialoq.read_jobs AS a) AS r
    JOIN dialoq.read_work_queues AS p ON p.queue_id = r.queue_id
    -- Young jobs of a queue that is not paused need not be counted.
    WHERE r.state >= 2 OR r.state = 0 AND r.attempts > 0 OR r.taken_at >= $2::bigint OR r.ready_at < $2::bigint OR NOT p.is_enabled
    GROUP BY r.queue_id) AS j
JOIN dialoq.read_work_queues AS q ON q.queue_id = j.queue_id
ORDER BY pg_catalog.lower(q.name), q.queue_id
