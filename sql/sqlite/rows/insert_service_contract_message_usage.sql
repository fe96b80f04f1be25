-- Writes one line of a contract.
-- Takes: ?1 service_contract_id, ?2 position, ?3 message_type, ?4 is_sent_by_initiator, ?5 is_sent_by_target
-- Gives: nothing
INSERT INTO dialoq_service_contract_message_usage (
    service_contract_id, position, message_type, is_sent_by_initiator, is_sent_by_target
) VALUES (?1, ?2, ?3, ?4, ?5)
