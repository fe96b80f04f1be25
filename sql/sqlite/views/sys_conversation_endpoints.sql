-- sys.conversation_endpoints. The endpoint's row is not touched by every message, so both sequences are worked out:
-- received is what arrived here, sent is what arrived at the peer or waits in the transmission queue.
CREATE VIEW sys_conversation_endpoints AS
WITH waiting AS (
    SELECT endpoint_id, max(sequence) + 1 AS next_sequence
    FROM dialoq_transmission WHERE is_conversation_error = 0 GROUP BY endpoint_id
)
SELECT
    lower(substr(hex(e.conversation_handle), 1, 8) || '-' || substr(hex(e.conversation_handle), 9, 4) || '-' || substr(hex(e.conversation_handle), 13, 4)
        || '-' || substr(hex(e.conversation_handle), 17, 4) || '-' || substr(hex(e.conversation_handle), 21, 12)) AS conversation_handle,
    lower(substr(hex(e.conversation_id), 1, 8) || '-' || substr(hex(e.conversation_id), 9, 4) || '-' || substr(hex(e.conversation_id), 13, 4)
        || '-' || substr(hex(e.conversation_id), 17, 4) || '-' || substr(hex(e.conversation_id), 21, 12)) AS conversation_id,
    e.is_initiator, e.service_contract_id,
    lower(substr(hex(e.conversation_group_id), 1, 8) || '-' || substr(hex(e.conversation_group_id), 9, 4) || '-' || substr(hex(e.conversation_group_id), 13, 4)
        || '-' || substr(hex(e.conversation_group_id), 17, 4) || '-' || substr(hex(e.conversation_group_id), 21, 12)) AS conversation_group_id,
    e.service_id,
    datetime(e.lifetime / 1000000, 'unixepoch') || printf('.%06d', e.lifetime % 1000000) AS lifetime,
    e.state,
    CASE e.state
        WHEN 'SO' THEN 'STARTED_OUTBOUND' WHEN 'SI' THEN 'STARTED_INBOUND' WHEN 'CO' THEN 'CONVERSING'
        WHEN 'DI' THEN 'DISCONNECTED_INBOUND' WHEN 'DO' THEN 'DISCONNECTED_OUTBOUND' WHEN 'ER' THEN 'ERROR'
        ELSE 'CLOSED'
    END AS state_desc,
    e.far_service, e.far_broker_instance, NULL AS principal_id, NULL AS far_principal_id,
    NULL AS outbound_session_key_identifier, NULL AS inbound_session_key_identifier,
    CASE WHEN e.security_timestamp IS NULL THEN '1900-01-01 00:00:00.000000'
        ELSE datetime(e.security_timestamp / 1000000, 'unixepoch') || printf('.%06d', e.security_timestamp % 1000000) END AS security_timestamp,
    datetime(e.dialog_timer / 1000000, 'unixepoch') || printf('.%06d', e.dialog_timer % 1000000) AS dialog_timer,
    max(e.send_sequence, coalesce(peer.receive_sequence, 0), coalesce(w.next_sequence, 0)) AS send_sequence,
    own.receive_sequence,
    0 AS receive_sequence_frag, e.end_dialog_sequence, 0 AS system_sequence,
    NULL AS first_out_of_order_sequence, NULL AS last_out_of_order_sequence, NULL AS last_out_of_order_frag,
    NULL AS last_send_tran_id, e.is_system, e.priority, e.is_quarantined,
    datetime(e.begun_at / 1000000, 'unixepoch') || printf('.%06d', e.begun_at % 1000000) AS begun_at, e.rollbacks,
    datetime(e.retry_at / 1000000, 'unixepoch') || printf('.%06d', e.retry_at % 1000000) AS retry_at
FROM dialoq_conversation_endpoint AS e
JOIN dialoq_received AS own ON own.endpoint_id = e.endpoint_id
LEFT JOIN dialoq_received AS peer ON peer.conversation_id = e.conversation_id AND peer.is_initiator <> e.is_initiator
LEFT JOIN waiting AS w ON w.endpoint_id = e.endpoint_id;
