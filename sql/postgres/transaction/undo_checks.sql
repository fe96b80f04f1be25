-- Undoes the checks of checked_commit.sql that were refused. The transaction is open again, as it was before them.
-- Takes: nothing
-- Gives: nothing
ROLLBACK TO SAVEPOINT dialoq_checks
