-- A reader that looks at the database as it is now, for as long as its transaction lasts.
-- Takes: nothing
-- Gives: nothing
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM dialoq.queue_message;
