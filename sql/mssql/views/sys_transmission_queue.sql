-- sys.transmission_queue
CREATE VIEW dialoq.sys_transmission_queue AS
SELECT
    e.conversation_handle, e.far_service AS to_service_name, e.far_broker_instance AS to_broker_instance,
    s.name AS from_service_name, c.name AS service_contract_name, t.enqueued_at AS enqueue_time,
    t.sequence AS message_sequence_number, m.name AS message_type_name, t.is_conversation_error, t.is_end_of_dialog,
    t.body AS message_body, t.status AS transmission_status, t.priority
FROM dialoq.effective_transmission AS t
LEFT JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = t.endpoint_id
LEFT JOIN dialoq.service AS s ON s.service_id = e.service_id
LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
LEFT JOIN dialoq.message_type AS m ON m.message_type_id = t.message_type_id;
GO
