-- Finished jobs that the history keeps, the latest first. A parameter that is NULL chooses nothing.
-- Takes: ?1 queue, ?2 finished_as, ?3 job_type, ?4 job_id, ?5 at most so many, ?6 1 with results
-- Gives: job_id, queue, job_type, job_key, level, finished_as, attempts, pushed_at, pushed_by, taken_at, taken_by, finished_at, last_error, result
SELECT
    h.job_id, q.name AS queue, h.job_type, h.job_key, h.level,
    CASE h.finished_as WHEN 4 THEN 'done' ELSE 'cancelled' END AS finished_as, h.attempts, h.pushed_at, h.pushed_by,
    h.taken_at, h.taken_by, h.finished_at, h.last_error,
    CASE WHEN ?6 = 1 THEN h.result END AS result
FROM dialoq_job_history AS h
JOIN dialoq_work_queue AS q ON q.queue_id = h.queue_id
WHERE
    (?1 IS NULL OR q.name = ?1 COLLATE NOCASE)
    AND (?2 IS NULL OR CASE h.finished_as WHEN 4 THEN 'done' ELSE 'cancelled' END = ?2)
    AND (?3 IS NULL OR h.job_type = ?3)
    AND (?4 IS NULL OR h.job_id = ?4)
ORDER BY h.queue_id, h.finish_number DESC
LIMIT ?5
