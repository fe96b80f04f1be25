-- Removes a broker priority.
-- Takes: ?1 priority_id
-- Gives: nothing
DELETE FROM dialoq_conversation_priority WHERE priority_id = ?1
