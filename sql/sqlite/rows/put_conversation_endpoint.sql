-- Writes an endpoint, new or not.
-- Takes: ?1 endpoint_id, ?2 conversation_handle, ?3 conversation_id, ?4 conversation_group_id, ?5 service_id, ?6 service_contract_id, ?7 is_initiator, ?8 far_service, ?9 far_broker_instance, ?10 state, ?11 priority, ?12 lifetime, ?13 dialog_timer, ?14 security_timestamp, ?15 send_sequence, ?16 receive_sequence, ?17 end_dialog_sequence, ?18 is_system, ?19 is_quarantined, ?20 begun_at, ?21 rollbacks, ?22 retry_at
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_conversation_endpoint (
    endpoint_id, conversation_handle, conversation_id, conversation_group_id, service_id,
    service_contract_id, is_initiator, far_service, far_broker_instance, state, priority, lifetime,
    dialog_timer, security_timestamp, send_sequence, receive_sequence, end_dialog_sequence, is_system,
    is_quarantined, begun_at, rollbacks, retry_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)
