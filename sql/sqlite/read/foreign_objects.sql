-- Counts the tables of a file that does not say it is ours.
-- Takes: nothing
-- Gives: count(*)
SELECT count(*)
FROM sqlite_schema
