-- Forgets a place and keeps what was done since.
-- Takes: the place's number for {number}
-- Gives: nothing
RELEASE SAVEPOINT dialoq_{number}
