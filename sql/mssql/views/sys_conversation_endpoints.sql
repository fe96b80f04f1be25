-- sys.conversation_endpoints. How far an endpoint has received is how far its peer's messages have left the peer; once
-- the peer is gone, the endpoint knows it itself.
CREATE VIEW dialoq.sys_conversation_endpoints AS
SELECT
    e.conversation_handle, e.conversation_id, e.is_initiator, e.service_contract_id, e.conversation_group_id,
    e.service_id, e.lifetime, e.state,
    CASE e.state
        WHEN N'SO' THEN N'STARTED_OUTBOUND' WHEN N'SI' THEN N'STARTED_INBOUND' WHEN N'CO' THEN N'CONVERSING'
        WHEN N'DI' THEN N'DISCONNECTED_INBOUND' WHEN N'DO' THEN N'DISCONNECTED_OUTBOUND' WHEN N'ER' THEN N'ERROR'
        ELSE N'CLOSED'
    END AS state_desc,
    e.far_service, e.far_broker_instance, CAST(NULL AS int) AS principal_id, CAST(NULL AS int) AS far_principal_id,
    CAST(NULL AS uniqueidentifier) AS outbound_session_key_identifier, CAST(NULL AS uniqueidentifier) AS inbound_session_key_identifier,
    COALESCE(e.security_timestamp, CAST('1900-01-01' AS datetime2(6))) AS security_timestamp,
    e.dialog_timer, e.send_sequence,
    CASE
        -- The row has what was received before an EndDialog once a verb has seen it.
        WHEN peer.endpoint_id IS NULL THEN (
            SELECT MAX(v.number)
            FROM (VALUES (e.receive_sequence), (COALESCE((
                SELECT TOP (1) m.sequence + 1 FROM dialoq.queue_message AS m
                WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = 0 ORDER BY m.queuing_order DESC), 0))) AS v (number))
        ELSE COALESCE(
            (SELECT min(t.sequence) FROM dialoq.transmission AS t
             WHERE t.endpoint_id = peer.endpoint_id AND t.is_conversation_error = 0),
            peer.send_sequence)
    END AS receive_sequence,
    0 AS receive_sequence_frag, e.end_dialog_sequence, 0 AS system_sequence,
    CAST(NULL AS bigint) AS first_out_of_order_sequence, CAST(NULL AS bigint) AS last_out_of_order_sequence,
    CAST(NULL AS int) AS last_out_of_order_frag, CAST(NULL AS varbinary(max)) AS last_send_tran_id,
    e.is_system, e.priority, e.is_quarantined, e.begun_at, e.rollbacks, e.retry_at
FROM dialoq.effective_endpoint AS e
LEFT JOIN dialoq.conversation_endpoint AS peer
    ON peer.conversation_id = e.conversation_id AND peer.is_initiator <> e.is_initiator;
GO
