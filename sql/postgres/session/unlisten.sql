-- Listens no more.
-- Takes: nothing
-- Gives: nothing
UNLISTEN dialoq;
