-- In a transaction of a read of ours: what it names without a schema is PostgreSQL's own, whatever another role has made in
-- a schema of the user's search path.
-- Takes: nothing
-- Gives: nothing
SET LOCAL search_path = pg_catalog, pg_temp
