-- Work queues with jobs that need a look, in one pass over the jobs. A job is ready since its push, its last failure or the time it was
-- due.
-- Takes: ?1 now, ?2 the moment before which a lease must have ended, and jobs must have become ready
-- Gives: subject (the work queue), is_enabled, dead, dead_since, lost, lost_since, ready, ready_since, waiting (jobs ready since before
--     that moment), waiting_since, is_idle (no job is taken now, none was since that moment, and in a strict queue no failed one pauses); times in microseconds
SELECT
    q.name AS subject, q.is_enabled, j.dead, j.dead_since, j.lost, j.lost_since, j.ready, j.ready_since, j.waiting, j.waiting_since,
    j.takings = 0 AND NOT (q.work_order = 'FIFO_STRICT' AND j.pausing > 0) AND NOT EXISTS (
        SELECT 1
        FROM (
            SELECT h.finished_as, h.finished_at FROM dialoq_job_history AS h
            WHERE h.queue_id = q.queue_id ORDER BY h.finish_number DESC LIMIT 100) AS f
        WHERE f.finished_as = 4 AND f.finished_at >= ?2) AS is_idle
FROM (
    SELECT
        r.queue_id,
        count(CASE WHEN r.state = 3 THEN 1 END) AS dead, min(CASE WHEN r.state = 3 THEN coalesce(r.failed_at, r.pushed_at) END) AS dead_since,
        count(CASE WHEN r.state = 2 AND r.due_at < ?2 THEN 1 END) AS lost,
        min(CASE WHEN r.state = 2 AND r.due_at < ?2 THEN r.due_at END) AS lost_since,
        count(CASE WHEN r.state = 1 OR r.ready_at <= ?1 THEN 1 END) AS ready,
        min(CASE WHEN r.state = 1 OR r.ready_at <= ?1 THEN r.ready_at END) AS ready_since,
        count(CASE WHEN r.ready_at < ?2 THEN 1 END) AS waiting, min(CASE WHEN r.ready_at < ?2 THEN r.ready_at END) AS waiting_since,
        -- A job without a lease is held by a transaction, or by one whose process has died and that no process has repaired yet.
        count(CASE WHEN r.state = 2 AND (r.due_at > ?1 OR r.due_at IS NULL AND r.taken_at >= ?1 - 300000000) OR r.taken_at >= ?2
            THEN 1 END) AS takings,
        count(CASE WHEN r.state = 0 AND r.attempts > 0 AND r.due_at > ?1 THEN 1 END) AS pausing
    FROM (
        SELECT
            a.queue_id, a.state, a.due_at, a.pushed_at, a.taken_at, a.failed_at, a.attempts,
            CASE a.state WHEN 0 THEN a.due_at WHEN 1 THEN max(a.pushed_at, coalesce(a.taken_at, 0), coalesce(a.failed_at, 0)) END
                AS ready_at
        FROM dialoq_job AS a) AS r
    -- The order of the tables is fixed: the other way round SQLite makes an index over all jobs first.
    CROSS JOIN dialoq_work_queue AS p
    -- Young jobs of a queue that is not paused need not be sorted.
    WHERE p.queue_id = r.queue_id AND (r.state >= 2 OR r.state = 0 AND r.attempts > 0 OR r.taken_at >= ?2 OR r.ready_at < ?2 OR p.is_enabled = 0)
    GROUP BY r.queue_id) AS j
CROSS JOIN dialoq_work_queue AS q
WHERE q.queue_id = j.queue_id
ORDER BY q.name COLLATE NOCASE, q.queue_id
