-- Writes the body of a pushed job that is too long for its row.
-- Takes: ?1 job_id, ?2 body
-- Gives: nothing
INSERT INTO dialoq_job_body (job_id, body) VALUES (?1, ?2)
