-- The contracts that services accept.
-- Takes: nothing
-- Gives: service_id, position, service_contract_id
SELECT
    service_id, position, service_contract_id
FROM dialoq.read_service_contract_usages ORDER BY service_id, position
