-- How a job ended, if it is one of the last 10,000 in the history of its queue: the history has no index by job.
-- Takes: $1 queue_id, $2 job_id
-- Gives: finished_as, attempts
SELECT CASE h.finished_as WHEN 4 THEN 'done' ELSE 'cancelled' END AS finished_as, h.attempts
FROM (
    SELECT l.job_id, l.finished_as, l.attempts
    FROM dialoq.read_job_history AS l
    WHERE l.queue_id = $1::bigint
    ORDER BY l.finish_number DESC
    LIMIT 10000) AS h
WHERE h.job_id = $2::bigint
LIMIT 1
