-- Reads the views as they stand, to see whether they must be written anew.
-- Takes: nothing
-- Gives: name, sql
SELECT name, sql FROM sqlite_schema WHERE type = 'view'
