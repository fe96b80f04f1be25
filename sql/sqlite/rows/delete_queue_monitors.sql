-- Forgets what was told about queue monitors.
-- Takes: nothing
-- Gives: nothing
DELETE FROM dialoq_queue_monitor
