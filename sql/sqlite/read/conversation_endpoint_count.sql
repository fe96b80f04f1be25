-- Counts the endpoints, so that room is made for them at once.
-- Takes: nothing
-- Gives: count
SELECT count(*) FROM dialoq_conversation_endpoint
