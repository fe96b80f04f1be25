-- Makes everything durable.
-- Takes: nothing
-- Gives: nothing
COMMIT
