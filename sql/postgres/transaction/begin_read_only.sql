-- Opens a transaction for a query of the user's.
-- Takes: nothing
-- Gives: nothing
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY
