-- Reads what has the name of one of the broker's views without its prefixes and is not that view: a table, an index, or a view from before the
-- broker had one of that name, with dialoq_dead_letter. The version of the tables may have been set by another program.
-- Takes: nothing
-- Gives: type, name
SELECT type, name FROM sqlite_schema
WHERE
    type IN ('table', 'index') AND lower(name) IN ('queue_messages', 'dead_letters')
    OR type = 'view' AND lower(name) = 'dead_letters'
        AND NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'dialoq_dead_letter')
