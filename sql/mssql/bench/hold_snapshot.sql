-- A reader that keeps a transaction open after a read of the database.
-- Takes: nothing
-- Gives: nothing
BEGIN TRANSACTION;
SELECT COUNT(*) FROM dialoq.service_queue;
