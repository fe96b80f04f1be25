-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: endpoint_id, conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator, far_service, far_broker_instance, state, priority, lifetime, dialog_timer, security_timestamp, send_sequence, receive_sequence, end_dialog_sequence, is_system, is_quarantined, begun_at, rollbacks, retry_at
SELECT
    endpoint_id, conversation_handle, conversation_id, conversation_group_id, service_id,
    service_contract_id, is_initiator, far_service, far_broker_instance, state, priority, lifetime,
    dialog_timer, security_timestamp, send_sequence, receive_sequence, end_dialog_sequence, is_system,
    is_quarantined, begun_at, rollbacks, retry_at
FROM dialoq_conversation_endpoint ORDER BY endpoint_id
