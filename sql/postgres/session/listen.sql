-- Hears what is told after commits.
-- Takes: nothing
-- Gives: nothing; notifications from now on
LISTEN dialoq;
