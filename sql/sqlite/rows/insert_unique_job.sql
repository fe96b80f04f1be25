-- Writes the name under which a job is the only one of its queue.
-- Takes: ?1 queue_id, ?2 unique_key, ?3 job_id, ?4 until_at
-- Gives: nothing
INSERT INTO dialoq_unique_job (queue_id, unique_key, job_id, until_at) VALUES (?1, ?2, ?3, ?4)
