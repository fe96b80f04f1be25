-- Opens a transaction. READ COMMITTED whatever the database's default: verbs read again after every wait for a lock.
-- Takes: nothing
-- Gives: nothing
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE
