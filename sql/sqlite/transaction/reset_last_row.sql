-- Makes last_insert_rowid() 0 and changes() 1: values that a transaction of the user begins with each time it is run.
-- Takes: nothing
-- Gives: nothing
REPLACE INTO temp.dialoq_last_row (id) VALUES (0)
