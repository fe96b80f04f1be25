-- Lets one installer in at a time, until the end of its transaction. The key is our prefix and nothing else.
-- Takes: nothing
-- Gives: nothing
SELECT pg_catalog.pg_advisory_xact_lock(17481::bigint << 48)
