-- Writes a broker priority, new or not.
-- Takes: ?1 priority_id, ?2 name, ?3 service_contract_id, ?4 local_service_id, ?5 remote_service_name, ?6 priority
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_conversation_priority (
    priority_id, name, service_contract_id, local_service_id, remote_service_name, priority
) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
