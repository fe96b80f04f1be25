-- In a session that serves no caller: a limit that the role or the database sets would stop a background step or an installation
-- each time it is tried. A limit on idle sessions would end one that listens, or holds messages for callers. PostgreSQL 17 is the first
-- with a limit on transactions.
-- Takes: nothing
-- Gives: nothing
SET statement_timeout = 0;
SET idle_session_timeout = 0;
SELECT CASE
    WHEN pg_catalog.current_setting('transaction_timeout', true) IS NOT NULL
        THEN pg_catalog.set_config('transaction_timeout', '0', false)
END
