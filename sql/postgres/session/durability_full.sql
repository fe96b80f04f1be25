-- The level of synchronous_commit that answers commits only once they are on the disk; a server that waits for more, as for its
-- replicas, goes on doing so. A part of session/connect.sql.
-- Takes: nothing
-- Gives: the level
pg_catalog.regexp_replace(pg_catalog.current_setting('synchronous_commit'), '^off$', 'on')
