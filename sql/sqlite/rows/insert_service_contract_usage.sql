-- Writes one contract of a service.
-- Takes: ?1 service_id, ?2 position, ?3 service_contract_id
-- Gives: nothing
INSERT INTO dialoq_service_contract_usage (
    service_id, position, service_contract_id
) VALUES (?1, ?2, ?3)
