-- sys.transmission_queue
CREATE VIEW sys_transmission_queue AS
SELECT
    lower(substr(hex(e.conversation_handle), 1, 8) || '-' || substr(hex(e.conversation_handle), 9, 4) || '-' || substr(hex(e.conversation_handle), 13, 4)
        || '-' || substr(hex(e.conversation_handle), 17, 4) || '-' || substr(hex(e.conversation_handle), 21, 12)) AS conversation_handle,
    e.far_service AS to_service_name, e.far_broker_instance AS to_broker_instance,
    s.name AS from_service_name, c.name AS service_contract_name,
    datetime(t.enqueued_at / 1000000, 'unixepoch') || printf('.%06d', t.enqueued_at % 1000000) AS enqueue_time,
    t.sequence AS message_sequence_number, m.name AS message_type_name, t.is_conversation_error, t.is_end_of_dialog,
    t.body AS message_body, t.status AS transmission_status, t.priority
FROM dialoq_transmission AS t
LEFT JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = t.endpoint_id
LEFT JOIN dialoq_service AS s ON s.service_id = e.service_id
LEFT JOIN dialoq_service_contract AS c ON c.service_contract_id = e.service_contract_id
LEFT JOIN dialoq_message_type AS m ON m.message_type_id = t.message_type_id;
