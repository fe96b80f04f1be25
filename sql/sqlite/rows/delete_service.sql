-- Removes a service.
-- Takes: ?1 service_id
-- Gives: nothing
DELETE FROM dialoq_service WHERE service_id = ?1
