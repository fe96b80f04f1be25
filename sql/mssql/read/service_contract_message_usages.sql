-- The message types of contracts.
-- Takes: nothing
-- Gives: service_contract_id, position, message_type, is_sent_by_initiator, is_sent_by_target
SELECT
    service_contract_id, position, message_type, is_sent_by_initiator, is_sent_by_target
FROM dialoq.read_service_contract_message_usages ORDER BY service_contract_id, position
