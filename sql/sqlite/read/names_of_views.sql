-- Reads the tables and views that have a name of one of the broker's views without its prefixes: a user may have had it before the
-- broker did.
-- Takes: nothing
-- Gives: type, name
SELECT type, name FROM sqlite_schema
WHERE type IN ('table', 'view') AND lower(name) IN ('queue_messages', 'dead_letters')
