-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: service_id, position, service_contract_id
SELECT
    service_id, position, service_contract_id
FROM dialoq_service_contract_usage ORDER BY service_id, position
