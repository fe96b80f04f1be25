-- How many conversation endpoints there are, the broker's own not counted.
-- Takes: nothing
-- Gives: conversations
SELECT count(*) AS conversations FROM dialoq.conversation_endpoint AS e WHERE NOT e.is_system;
