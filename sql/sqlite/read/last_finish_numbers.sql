-- Reads the last number of each history, for opening the file.
-- Takes: nothing
-- Gives: queue_id, finish_number
SELECT queue_id, MAX(finish_number) FROM dialoq_job_history GROUP BY queue_id
