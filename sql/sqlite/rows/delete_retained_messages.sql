-- Removes all that was kept for an endpoint.
-- Takes: ?1 endpoint_id
-- Gives: nothing
DELETE FROM dialoq_retained_message WHERE endpoint_id = ?1
