-- Ends the reader.
-- Takes: nothing
-- Gives: nothing
ROLLBACK TRANSACTION;
