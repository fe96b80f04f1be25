-- Commits a transaction of the rival.
-- Takes: nothing
-- Gives: nothing
COMMIT;
