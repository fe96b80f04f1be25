-- Opens a transaction of the rival.
-- Takes: nothing
-- Gives: nothing
BEGIN;
