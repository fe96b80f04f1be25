-- Writes out what earlier rounds changed on both sides, so that none pays for another; rows that are gone the server
-- removes by itself. Nobody measures it.
-- Takes: nothing
-- Gives: nothing
CHECKPOINT;
