-- Commits the transaction, also one in which the user's statements have begun others: of those COMMIT only lowers a count.
-- Takes: nothing.
-- Gives: nothing; error 3902 if the server has rolled it back already.
WHILE @@TRANCOUNT > 1 COMMIT TRANSACTION;
COMMIT TRANSACTION;
