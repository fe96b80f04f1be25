-- Commits.
-- Takes: nothing
-- Gives: nothing
COMMIT
