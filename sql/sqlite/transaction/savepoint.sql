-- Marks the place before the user's own SQL.
-- Takes: nothing
-- Gives: nothing
SAVEPOINT dialoq_unit
