-- Adds a row with a deferred foreign key that its parent satisfies.
-- Takes: nothing
-- Gives: nothing
INSERT INTO temp.dialoq_deferred_child (id, name) VALUES (1, 'parent')
