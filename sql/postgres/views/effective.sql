-- Endpoints and messages with all pending messages applied. Only the holder of a group's lock writes its endpoints, so an end or
-- an error that has arrived may be a row of queue_message only. The other views read these.

CREATE VIEW dialoq.effective_endpoint AS
SELECT
    e.endpoint_id, e.conversation_handle, e.conversation_id, e.conversation_group_id, e.service_id,
    e.service_contract_id, e.is_initiator, e.far_service, e.far_broker_instance,
    -- As effective_state and first_system of rules/endpoint.sql: a reader of a view needs rights on its functions.
    CASE (
            SELECT min(m.message_type_id) FROM dialoq.queue_message AS m
            WHERE m.endpoint_id = e.endpoint_id AND m.message_type_id IN (1, 2, 3))
        WHEN 1 THEN CASE WHEN e.state IN ('SO', 'CO', 'DI') THEN 'ER' ELSE e.state END
        WHEN 2 THEN CASE e.state WHEN 'CO' THEN 'DI' ELSE e.state END
        ELSE e.state
    END AS state,
    e.priority, e.lifetime, e.dialog_timer, e.security_timestamp,
    coalesce((SELECT n.send_sequence FROM dialoq.send_counter AS n
        WHERE n.endpoint_id = e.endpoint_id ORDER BY n.bucket DESC LIMIT 1), 0) AS send_sequence, e.receive_sequence,
    e.end_dialog_sequence, e.is_peer_known, e.is_system, e.is_quarantined, e.begun_at, e.rollbacks, e.retry_at
FROM dialoq.conversation_endpoint AS e;

-- Messages that can be received. The rest of an endpoint that has ended cannot, nor can messages to a notification of the
-- broker's own.
CREATE VIEW dialoq.effective_message AS
SELECT
    m.queuing_order, m.endpoint_id, m.delivery_class, m.sequence, m.message_type_id, m.message_id, m.enqueued_at, m.body, m.trace
FROM dialoq.queue_message AS m
JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
WHERE e.state NOT IN ('DO', 'CD') AND NOT e.is_system;

-- The transmission queue. The messages of an endpoint that has got its end or an error are held until END.
CREATE VIEW dialoq.effective_transmission AS
SELECT
    t.transmission_id, t.endpoint_id, t.sequence, t.message_type_id, t.is_conversation_error, t.is_end_of_dialog,
    t.message_id, t.enqueued_at, t.priority, t.body, t.trace,
    CASE e.state
        WHEN 'DI' THEN '9779: the other side has ended the conversation; the message is held until END CONVERSATION'
        WHEN 'ER' THEN '9784: the conversation is in error; the message is held until END CONVERSATION'
        ELSE t.status
    END AS status
FROM dialoq.transmission AS t
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = t.endpoint_id;
