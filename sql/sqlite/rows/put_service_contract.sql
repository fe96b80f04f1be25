-- Writes a contract, new or not.
-- Takes: ?1 service_contract_id, ?2 name, ?3 owner, ?4 is_dropped
-- Gives: nothing
INSERT INTO dialoq_service_contract (
    service_contract_id, name, owner, is_dropped
) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (service_contract_id) DO UPDATE SET
    name = excluded.name, owner = excluded.owner, is_dropped = excluded.is_dropped
