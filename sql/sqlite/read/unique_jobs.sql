-- Reads the unique names, for opening the file.
-- Takes: nothing
-- Gives: queue_id, unique_key, job_id, until_at
SELECT queue_id, unique_key, job_id, until_at FROM dialoq_unique_job
