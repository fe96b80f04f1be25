-- Opens a transaction. READ COMMITTED whatever the database's default: verbs read again after every wait for a lock. Whether it
-- may write is the default's: an administrator sets default_transaction_read_only before a database is copied elsewhere.
-- DEFERRABLE has no effect at this level; session/call_after_begin.sql knows by it that the transaction has begun.
-- Takes: nothing
-- Gives: nothing
BEGIN ISOLATION LEVEL READ COMMITTED, DEFERRABLE
