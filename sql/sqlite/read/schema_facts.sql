-- What a commit has to ask because of the schema.
-- Takes: nothing
-- Gives: has_foreign_keys, has_virtual_tables
SELECT
    EXISTS (
        SELECT 1
        FROM sqlite_schema AS schema
        INNER JOIN pragma_foreign_key_list(schema.name)
        WHERE schema.type = 'table' AND schema.rootpage > 0
    ) AS has_foreign_keys,
    EXISTS (
        SELECT 1
        FROM sqlite_schema AS schema
        WHERE schema.type = 'table' AND schema.rootpage = 0
    ) AS has_virtual_tables
