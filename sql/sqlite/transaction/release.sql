-- Keeps what the user's own SQL did.
-- Takes: nothing
-- Gives: nothing
RELEASE dialoq_unit
