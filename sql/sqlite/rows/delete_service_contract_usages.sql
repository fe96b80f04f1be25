-- Removes the contracts of a service.
-- Takes: ?1 service_id
-- Gives: nothing
DELETE FROM dialoq_service_contract_usage WHERE service_id = ?1
