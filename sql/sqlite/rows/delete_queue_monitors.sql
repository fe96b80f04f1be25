-- Deletes all rows of queue monitors.
-- Takes: nothing
-- Gives: nothing
DELETE FROM dialoq_queue_monitor
