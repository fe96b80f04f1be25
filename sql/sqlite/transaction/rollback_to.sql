-- Undoes what the user's own SQL did.
-- Takes: nothing
-- Gives: nothing
ROLLBACK TO dialoq_unit
