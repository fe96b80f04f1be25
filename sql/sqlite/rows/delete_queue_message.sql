-- Removes a message from its queue.
-- Takes: ?1 queuing_order
-- Gives: nothing
DELETE FROM dialoq_queue_message WHERE queuing_order = ?1
