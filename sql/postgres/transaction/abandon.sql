-- Cleans a session whose user went away in the middle: no transaction, no lock, nothing set by a savepoint.
-- Takes: nothing
-- Gives: nothing
ROLLBACK;
SELECT pg_catalog.pg_advisory_unlock_all();
SET dialoq.session_locks = ''
