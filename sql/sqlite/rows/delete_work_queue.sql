-- Removes a work queue.
-- Takes: ?1 queue_id
-- Gives: nothing
DELETE FROM dialoq_work_queue WHERE queue_id = ?1
