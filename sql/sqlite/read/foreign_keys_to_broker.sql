-- Finds the tables of the user that have a foreign key to a table of the broker.
-- Takes: nothing
-- Gives: name, referenced table
SELECT schema.name, key."table"
FROM sqlite_schema AS schema
INNER JOIN pragma_foreign_key_list(schema.name) AS key
WHERE
    schema.type = 'table'
    AND lower(schema.name) NOT LIKE 'dialoq\_%' ESCAPE '\'
    AND lower(key."table") LIKE 'dialoq\_%' ESCAPE '\'
ORDER BY schema.name
