-- How many conversation endpoints there are, the broker's own not counted.
-- Takes: nothing
-- Gives: conversations
SELECT COUNT_BIG(*) AS conversations FROM dialoq.conversation_endpoint WHERE is_system = 0;
