-- Rolls back.
-- Takes: nothing
-- Gives: nothing
ROLLBACK
