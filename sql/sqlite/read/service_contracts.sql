-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: service_contract_id, name, owner, is_dropped
SELECT
    service_contract_id, name, owner, is_dropped
FROM dialoq_service_contract ORDER BY service_contract_id
