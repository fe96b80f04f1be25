-- Removes the lines of a contract.
-- Takes: ?1 service_contract_id
-- Gives: nothing
DELETE FROM dialoq_service_contract_message_usage WHERE service_contract_id = ?1
