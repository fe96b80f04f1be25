-- A reader that keeps the snapshot of now until its transaction ends.
-- Takes: nothing
-- Gives: nothing
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM dialoq.queue_message;
