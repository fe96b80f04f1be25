-- Endpoints and messages after pending messages are applied. Only the holder of a conversation group's lock writes its
-- endpoints, so an EndDialog or an Error may still be only a row of queue_message (rules/endpoint.sql, pending_state). The other
-- views read these.
CREATE VIEW dialoq.effective_endpoint AS
SELECT
    e.endpoint_id, e.conversation_handle, e.conversation_id, e.conversation_group_id, e.service_id,
    e.service_contract_id, e.is_initiator, e.far_service, e.far_broker_instance,
    CASE
        WHEN e.state IN (N'SO', N'CO', N'DI')
            AND EXISTS (SELECT 1 FROM dialoq.queue_message AS m WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = 1)
            THEN N'ER'
        -- An EndDialog is the last message that a conversation receives.
        WHEN e.state = N'CO' AND 2 = (
            SELECT TOP (1) m.message_type_id FROM dialoq.queue_message AS m
            WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = 0 ORDER BY m.queuing_order DESC
        ) THEN N'DI'
        ELSE e.state
    END AS state,
    e.priority, e.lifetime, e.dialog_timer, e.security_timestamp, e.send_sequence, e.receive_sequence,
    e.end_dialog_sequence, e.is_peer_known, e.is_system, e.is_quarantined, e.begun_at, e.rollbacks, e.retry_at
FROM dialoq.conversation_endpoint AS e;
GO
-- Messages that can be received. The rest of an endpoint that has ended cannot, nor can messages to a notification of the
-- broker's own.
CREATE VIEW dialoq.effective_message AS
SELECT
    m.queuing_order, m.endpoint_id, m.delivery_class, m.sequence, m.message_type_id, m.message_id, m.enqueued_at, m.body, m.trace
FROM dialoq.queue_message AS m
JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
WHERE e.state NOT IN (N'DO', N'CD') AND e.is_system = 0;
GO
-- Messages that wait to be delivered. Those of an endpoint in DI or ER are held until END CONVERSATION.
CREATE VIEW dialoq.effective_transmission AS
SELECT
    t.transmission_id, t.endpoint_id, t.sequence, t.message_type_id, t.is_conversation_error, t.is_end_of_dialog,
    t.message_id, t.enqueued_at, t.priority, t.body, t.trace,
    CASE e.state
        WHEN N'DI' THEN N'9779: the other side has ended the conversation; the message is held until END CONVERSATION'
        WHEN N'ER' THEN N'9784: the conversation is in error; the message is held until END CONVERSATION'
        ELSE t.status
    END AS status
FROM dialoq.transmission AS t
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = t.endpoint_id;
GO
