-- Copies a finished job to the history.
-- Takes: ?1 job_id, ?2 finish_number, ?3 finished_as, ?4 finished_at, ?5 result
-- Gives: nothing
INSERT INTO dialoq_job_history (
    queue_id, finish_number, job_id, job_type, job_key, level, finished_as, attempts, pushed_at, pushed_by, taken_at,
    taken_by, finished_at, last_error, result
)
SELECT
    queue_id, ?2, job_id, job_type, job_key, level, ?3, attempts, pushed_at, pushed_by, taken_at, taken_by, ?4,
    last_error, ?5
FROM dialoq_job WHERE job_id = ?1
