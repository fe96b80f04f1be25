-- Begins a transaction that may write.
-- Takes: nothing
-- Gives: nothing
BEGIN IMMEDIATE
