-- Undoes everything since a marked place, and marks it again: not every server lets the mark outlive this.
-- Takes: <number>, which is part of the name.
-- Gives: nothing.
ROLLBACK TRANSACTION dialoq_<number>;
SAVE TRANSACTION dialoq_<number>;
