-- Marks a place to come back to.
-- Takes: the place's number for {number}
-- Gives: nothing
SAVEPOINT dialoq_{number}
