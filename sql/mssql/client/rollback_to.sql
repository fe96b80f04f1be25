-- Undoes everything since a marked place.
-- Takes: <number>, which is part of the name.
-- Gives: nothing.
ROLLBACK TRANSACTION dialoq_<number>;
