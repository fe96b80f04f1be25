-- sys.conversation_endpoints. How far an endpoint has received is how far its peer's messages have left the peer; once
-- the peer is gone, the endpoint's own row has it.
CREATE VIEW dialoq.sys_conversation_endpoints AS
SELECT
    e.conversation_handle, e.conversation_id, e.is_initiator, e.service_contract_id, e.conversation_group_id,
    e.service_id, e.lifetime, e.state,
    CASE e.state
        WHEN 'SO' THEN 'STARTED_OUTBOUND' WHEN 'SI' THEN 'STARTED_INBOUND' WHEN 'CO' THEN 'CONVERSING'
        WHEN 'DI' THEN 'DISCONNECTED_INBOUND' WHEN 'DO' THEN 'DISCONNECTED_OUTBOUND' WHEN 'ER' THEN 'ERROR'
        ELSE 'CLOSED'
    END AS state_desc,
    e.far_service, e.far_broker_instance, NULL::integer AS principal_id, NULL::integer AS far_principal_id,
    NULL::uuid AS outbound_session_key_identifier, NULL::uuid AS inbound_session_key_identifier,
    coalesce(e.security_timestamp, '1900-01-01 00:00:00+00'::timestamptz) AS security_timestamp,
    e.dialog_timer, e.send_sequence,
    CASE
        WHEN peer.endpoint_id IS NULL THEN greatest(e.receive_sequence, (
            SELECT m.sequence + 1 FROM dialoq.queue_message AS m
            WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = 0 ORDER BY m.queuing_order DESC LIMIT 1))
        ELSE coalesce(
            (SELECT min(t.sequence) FROM dialoq.transmission AS t
             WHERE t.endpoint_id = peer.endpoint_id AND NOT t.is_conversation_error),
            (SELECT n.send_sequence FROM dialoq.send_counter AS n
             WHERE n.endpoint_id = peer.endpoint_id ORDER BY n.bucket DESC LIMIT 1), 0)
    END AS receive_sequence,
    0 AS receive_sequence_frag, e.end_dialog_sequence, 0 AS system_sequence,
    NULL::bigint AS first_out_of_order_sequence, NULL::bigint AS last_out_of_order_sequence,
    NULL::integer AS last_out_of_order_frag, NULL::bytea AS last_send_tran_id,
    e.is_system, e.priority, e.is_quarantined, e.begun_at, e.rollbacks, e.retry_at
FROM dialoq.effective_endpoint AS e
LEFT JOIN dialoq.conversation_endpoint AS peer
    ON peer.conversation_id = e.conversation_id AND peer.is_initiator = (NOT e.is_initiator);
