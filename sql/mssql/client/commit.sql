-- Commits the transaction.
-- Takes: nothing.
-- Gives: nothing; error 3902 if the server has rolled it back already.
COMMIT TRANSACTION;
