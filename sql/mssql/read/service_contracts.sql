-- Contracts, dropped ones too.
-- Takes: nothing
-- Gives: service_contract_id, name, owner, is_dropped
SELECT
    service_contract_id, name, owner, is_dropped
FROM dialoq.read_service_contracts ORDER BY service_contract_id
