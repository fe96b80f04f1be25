-- Commits, and checks deferred constraints under a savepoint before. If one fails, the statements after it do not run, so the
-- transaction is still open.
-- Takes: nothing
-- Gives: nothing
SAVEPOINT dialoq_checks;
SET CONSTRAINTS ALL IMMEDIATE;
RELEASE SAVEPOINT dialoq_checks;
COMMIT
