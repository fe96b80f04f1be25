-- Writes a contract, new or not.
-- Takes: ?1 service_contract_id, ?2 name, ?3 owner, ?4 is_dropped
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_service_contract (
    service_contract_id, name, owner, is_dropped
) VALUES (?1, ?2, ?3, ?4)
