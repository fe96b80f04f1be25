-- Opens a transaction.
-- Takes: nothing.
-- Gives: nothing.
BEGIN TRANSACTION;
