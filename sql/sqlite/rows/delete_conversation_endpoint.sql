-- Removes an endpoint.
-- Takes: ?1 endpoint_id
-- Gives: nothing
DELETE FROM dialoq_conversation_endpoint WHERE endpoint_id = ?1
