-- Removes a queue.
-- Takes: ?1 queue_id
-- Gives: nothing
DELETE FROM dialoq_service_queue WHERE queue_id = ?1
