-- A transaction that held a job ended with its store, and not by its own doing: the attempt does not count.
-- Takes: ?1 job_id, ?2 token
-- Gives: nothing
UPDATE dialoq_job SET state = 1, attempts = attempts - 1
WHERE job_id = ?1 AND token = ?2 AND state = 2 AND due_at IS NULL AND attempts > 0
