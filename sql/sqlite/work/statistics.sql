-- How long jobs waited to be taken (from the push to the last taking) and to be completed (from there), over the history.
-- Takes: ?1 queue or NULL, ?2 by: queue, reader or writer
-- Gives: queue, name, jobs, take_avg_us, take_p50_us, take_p95_us, take_p99_us, complete_avg_us, complete_p50_us, complete_p95_us, complete_p99_us
WITH timed AS (
    SELECT
        q.name AS queue,
        CASE ?2 WHEN 'reader' THEN h.taken_by WHEN 'writer' THEN h.pushed_by ELSE '' END AS name,
        h.taken_at - h.pushed_at AS take_us, h.finished_at - h.taken_at AS complete_us
    FROM dialoq_job_history AS h
    JOIN dialoq_work_queue AS q ON q.queue_id = h.queue_id
    WHERE h.finished_as = 4 AND h.taken_at IS NOT NULL AND (?1 IS NULL OR q.name = ?1 COLLATE NOCASE)
),
ranked AS (
    SELECT
        queue, name, take_us, complete_us,
        cume_dist() OVER (PARTITION BY queue, name ORDER BY take_us) AS take_rank,
        cume_dist() OVER (PARTITION BY queue, name ORDER BY complete_us) AS complete_rank
    FROM timed
)
SELECT
    queue, name, count(*) AS jobs,
    CAST(avg(take_us) AS INTEGER) AS take_avg_us,
    min(CASE WHEN take_rank >= 0.5 THEN take_us END) AS take_p50_us,
    min(CASE WHEN take_rank >= 0.95 THEN take_us END) AS take_p95_us,
    min(CASE WHEN take_rank >= 0.99 THEN take_us END) AS take_p99_us,
    CAST(avg(complete_us) AS INTEGER) AS complete_avg_us,
    min(CASE WHEN complete_rank >= 0.5 THEN complete_us END) AS complete_p50_us,
    min(CASE WHEN complete_rank >= 0.95 THEN complete_us END) AS complete_p95_us,
    min(CASE WHEN complete_rank >= 0.99 THEN complete_us END) AS complete_p99_us
FROM ranked
GROUP BY queue, name
ORDER BY queue COLLATE NOCASE, jobs DESC, name
