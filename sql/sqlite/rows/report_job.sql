-- A reader noted how far it is.
-- Takes: ?1 job_id, ?2 progress
-- Gives: nothing
UPDATE dialoq_job SET progress = ?2 WHERE job_id = ?1
