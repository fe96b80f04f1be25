-- Counts the tables whose definition mentions deferred constraints: only then a commit can fail for the data.
-- Takes: nothing
-- Gives: count(*)
SELECT count(*)
FROM sqlite_schema WHERE sql LIKE '%DEFERRED%' AND name NOT LIKE 'dialoq\_%' ESCAPE '\'
