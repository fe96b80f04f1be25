-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: priority_id, name, service_contract_id, local_service_id, remote_service_name, priority
SELECT
    priority_id, name, service_contract_id, local_service_id, remote_service_name, priority
FROM dialoq_conversation_priority ORDER BY priority_id
