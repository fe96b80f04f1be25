-- Marks a place in the transaction.
-- Takes: <number>, which is part of the name.
-- Gives: nothing.
SAVE TRANSACTION dialoq_<number>;
