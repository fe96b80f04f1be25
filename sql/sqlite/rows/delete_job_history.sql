-- Removes the history of a work queue that is dropped.
-- Takes: ?1 queue_id
-- Gives: nothing
DELETE FROM dialoq_job_history WHERE queue_id = ?1
