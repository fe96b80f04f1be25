-- Work queues with jobs that need a look, in one pass over the jobs. A job is ready since its push, its last failure or the time it was
-- due.
-- Takes: @P1 now, @P2 the moment before which a lease must have ended, and jobs must have become ready
-- Gives: subject (the work queue), is_enabled, dead, dead_since, lost, lost_since, ready, ready_since, waiting (jobs ready since before
--     that moment), waiting_since, is_idle (no job is taken now, none was since that moment, and in a strict queue no failed one pauses); times in microseconds
SELECT
    q.name AS subject, q.is_enabled, j.dead, j.dead_since, j.lost, j.lost_since, j.ready, j.ready_since, j.waiting, j.waiting_since,
    CAST(CASE WHEN j.takings = 0 AND NOT (q.work_order = N'FIFO_STRICT' AND j.pausing > 0) AND NOT EXISTS (
        SELECT 1
        FROM (
            SELECT TOP (100) h.finished_as, h.finished_at FROM dialoq.read_job_history AS h
            WHERE h.queue_id = q.queue_id ORDER BY h.finish_number DESC) AS f
        WHERE f.finished_as = 4 AND f.finished_at >= CAST(@P2 AS bigint)) THEN 1 ELSE 0 END AS bit) AS is_idle
FROM (
    SELECT
        r.queue_id,
        COUNT_BIG(CASE WHEN r.state = 3 THEN 1 END) AS dead, MIN(CASE WHEN r.state = 3 THEN COALESCE(r.failed_at, r.pushed_at) END) AS dead_since,
        COUNT_BIG(CASE WHEN r.state = 2 AND r.due_at < CAST(@P2 AS bigint) THEN 1 END) AS lost,
        MIN(CASE WHEN r.state = 2 AND r.due_at < CAST(@P2 AS bigint) THEN r.due_at END) AS lost_since,
        COUNT_BIG(CASE WHEN r.state = 1 OR r.ready_at <= CAST(@P1 AS bigint) THEN 1 END) AS ready,
        MIN(CASE WHEN r.state = 1 OR r.ready_at <= CAST(@P1 AS bigint) THEN r.ready_at END) AS ready_since,
        COUNT_BIG(CASE WHEN r.ready_at < CAST(@P2 AS bigint) THEN 1 END) AS waiting,
        MIN(CASE WHEN r.ready_at < CAST(@P2 AS bigint) THEN r.ready_at END) AS waiting_since,
        COUNT_BIG(CASE WHEN r.state = 2 AND (r.due_at IS NULL OR r.due_at > CAST(@P1 AS bigint)) OR r.taken_at >= CAST(@P2 AS bigint)
            THEN 1 END) AS takings,
        COUNT_BIG(CASE WHEN r.state = 0 AND r.attempts > 0 AND r.due_at > CAST(@P1 AS bigint) THEN 1 END) AS pausing
    FROM (
        SELECT
            a.queue_id, a.state, a.due_at, a.pushed_at, a.taken_at, a.failed_at, a.attempts,
            CASE
                WHEN a.state = 0 THEN a.due_at
                WHEN a.state = 1 AND a.failed_at > a.pushed_at AND (a.taken_at IS NULL OR a.failed_at >= a.taken_at) THEN a.failed_at
                WHEN a.state = 1 AND a.taken_at > a.pushed_at THEN a.taken_at
                WHEN a.state = 1 THEN a.pushed_at
            END AS ready_at
        FROM dialoq.read_jobs AS a) AS r
    JOIN dialoq.read_work_queues AS p ON p.queue_id = r.queue_id
    -- Young jobs of a queue that is not paused need not be counted.
    WHERE r.state >= 2 OR r.state = 0 AND r.attempts > 0 OR r.taken_at >= CAST(@P2 AS bigint) OR r.ready_at < CAST(@P2 AS bigint) OR p.is_enabled = 0
    GROUP BY r.queue_id) AS j
JOIN dialoq.read_work_queues AS q ON q.queue_id = j.queue_id
ORDER BY LOWER(q.name), q.queue_id
