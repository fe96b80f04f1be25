-- Reads every table, view, index and trigger with a name of the broker's, or on a table of the broker's, and all that are
-- temporary: only the broker may make those, because they hide others of the same name.
-- Takes: nothing
-- Gives: type, name, tbl_name, sql, is_temporary
SELECT type, name, tbl_name, sql, 0 AS is_temporary
FROM sqlite_schema
WHERE
    lower(name) LIKE 'dialoq\_%' ESCAPE '\' OR lower(tbl_name) LIKE 'dialoq\_%' ESCAPE '\'
    OR lower(name) LIKE 'sys\_%' ESCAPE '\' OR lower(tbl_name) LIKE 'sys\_%' ESCAPE '\'
    OR lower(name) IN ('queue_messages', 'dead_letters') OR lower(tbl_name) IN ('queue_messages', 'dead_letters')
UNION ALL
SELECT type, name, tbl_name, sql, 1 AS is_temporary
FROM sqlite_temp_schema
ORDER BY is_temporary, type, name
