-- What a commit has to ask because of the schema. Only a table whose text has the word can have a foreign key (as in
-- tables_with_foreign_keys).
-- Takes: nothing
-- Gives: may_have_foreign_keys, has_virtual_tables, may_read_last_row
SELECT
    EXISTS (
        SELECT 1
        FROM sqlite_schema
        WHERE type = 'table' AND rootpage > 0 AND lower(sql) LIKE '%references%'
    ) AS may_have_foreign_keys,
    EXISTS (
        SELECT 1
        FROM sqlite_schema
        WHERE type = 'table' AND rootpage = 0
    ) AS has_virtual_tables,
    EXISTS (
        SELECT 1
        FROM sqlite_schema
        WHERE sql LIKE '%last_insert_rowid%' OR sql LIKE '%changes%'
    ) AS may_read_last_row
