-- Finds the tables of the user that may have a foreign key: only a text with this word can have one. SQLite's functions that
-- list keys are not asked here: a table of the user with such a function's name stands before it.
-- Takes: nothing
-- Gives: name
SELECT name
FROM sqlite_schema
WHERE
    type = 'table'
    AND rootpage > 0
    AND lower(sql) LIKE '%references%'
    AND lower(name) NOT LIKE 'dialoq\_%' ESCAPE '\'
ORDER BY name
