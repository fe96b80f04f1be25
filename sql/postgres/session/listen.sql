-- Listens for the notices of commits.
-- Takes: nothing
-- Gives: nothing; notifications from now on
LISTEN dialoq;
