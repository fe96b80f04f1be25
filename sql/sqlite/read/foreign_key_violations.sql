-- Tells whether any row breaks a foreign key; reads every table that has one.
-- Takes: nothing
-- Gives: count(*)
SELECT count(*)
FROM pragma_foreign_key_check
