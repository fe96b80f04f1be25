-- Reads the marks, for opening the file.
-- Takes: nothing
-- Gives: next_job_id, next_token
SELECT next_job_id, next_token FROM dialoq_work_marks
