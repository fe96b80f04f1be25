-- Makes the table that resets last_insert_rowid().
-- Takes: nothing
-- Gives: nothing
CREATE TEMP TABLE dialoq_last_row (id INTEGER PRIMARY KEY)
