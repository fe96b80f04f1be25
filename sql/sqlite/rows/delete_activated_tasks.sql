-- Deletes all rows of readers.
-- Takes: nothing
-- Gives: nothing
DELETE FROM dialoq_activated_task
