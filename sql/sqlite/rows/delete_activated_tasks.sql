-- Forgets what was told about readers.
-- Takes: nothing
-- Gives: nothing
DELETE FROM dialoq_activated_task
