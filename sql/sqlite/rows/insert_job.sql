-- Writes a pushed job.
-- Takes: ?1 job_id, ?2 queue_id, ?3 job_type, ?4 job_key, ?5 level, ?6 state, ?7 due_at, ?8 pushed_at, ?9 pushed_by, ?10 body
-- Gives: nothing
INSERT INTO dialoq_job (
    job_id, queue_id, job_type, job_key, level, state, attempts, token, due_at, pushed_at, pushed_by, body
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, ?8, ?9, ?10)
