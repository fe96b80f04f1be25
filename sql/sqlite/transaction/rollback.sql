-- Undoes everything.
-- Takes: nothing
-- Gives: nothing
ROLLBACK
