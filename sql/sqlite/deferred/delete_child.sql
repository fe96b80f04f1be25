-- Removes that row. SQLite searches its parent only while it counts a row that breaks a deferred foreign key.
-- Takes: nothing
-- Gives: nothing
DELETE FROM temp.dialoq_deferred_child
