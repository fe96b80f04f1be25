-- Reads every table, view, index and trigger with a name of the broker's, or on a table of the broker's.
-- Takes: nothing
-- Gives: type, name, tbl_name, sql
SELECT type, name, tbl_name, sql
FROM sqlite_schema
WHERE
    lower(name) LIKE 'dialoq\_%' ESCAPE '\' OR lower(tbl_name) LIKE 'dialoq\_%' ESCAPE '\'
    OR lower(name) LIKE 'sys\_%' ESCAPE '\' OR lower(tbl_name) LIKE 'sys\_%' ESCAPE '\'
    OR lower(name) = 'queue_messages' OR lower(tbl_name) = 'queue_messages'
ORDER BY type, name
