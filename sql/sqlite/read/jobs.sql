-- Reads the jobs without what only their readers need, for opening the file.
-- Takes: nothing
-- Gives: job_id, queue_id, job_type, job_key, level, state, attempts, token, due_at, pushed_at
SELECT job_id, queue_id, job_type, job_key, level, state, attempts, token, due_at, pushed_at
FROM dialoq_job ORDER BY job_id
