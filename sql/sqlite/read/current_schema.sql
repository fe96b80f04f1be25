-- Makes SQLite compare the schema that it has in memory with the file's, and holds the snapshot until the rows are dropped.
-- Takes: nothing
-- Gives: one row at least
SELECT 1 FROM sqlite_schema
