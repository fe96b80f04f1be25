-- Broker priorities.
-- Takes: nothing
-- Gives: priority_id, name, service_contract_id, local_service_id, remote_service_name, priority
SELECT
    priority_id, name, service_contract_id, local_service_id, remote_service_name, priority
FROM dialoq.read_conversation_priorities ORDER BY priority_id
