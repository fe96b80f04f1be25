-- Undoes everything since a place, which stays.
-- Takes: the place's number for {number}
-- Gives: nothing
ROLLBACK TO SAVEPOINT dialoq_{number}
