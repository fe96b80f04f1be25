-- Messages in the transmission queue, in order. A parameter that is NULL chooses nothing.
-- Takes: ?1 conversation_handle, ?2 message_id, ?3 at most so many bytes of each body, ?4 at most so many
-- Gives: conversation_handle, from_service, to_service, service_contract_name, priority, sequence, message_type_name, message_id, is_conversation_error, is_end_of_dialog, enqueued_at (microseconds of UTC), body, body_bytes, transmission_status
SELECT
    hex(e.conversation_handle) AS conversation_handle, s.name AS from_service, e.far_service AS to_service,
    c.name AS service_contract_name, t.priority, t.sequence, m.name AS message_type_name, hex(t.message_id) AS message_id,
    t.is_conversation_error, t.is_end_of_dialog, t.enqueued_at, substr(t.body, 1, ?3) AS body,
    coalesce(length(t.body), 0) AS body_bytes, t.status AS transmission_status
FROM dialoq_transmission AS t
JOIN dialoq_conversation_endpoint AS e ON e.endpoint_id = t.endpoint_id
LEFT JOIN dialoq_service AS s ON s.service_id = e.service_id
LEFT JOIN dialoq_service_contract AS c ON c.service_contract_id = e.service_contract_id
LEFT JOIN dialoq_message_type AS m ON m.message_type_id = t.message_type_id
WHERE (?1 IS NULL OR hex(e.conversation_handle) = upper(replace(?1, '-', ''))) AND (?2 IS NULL OR hex(t.message_id) = upper(replace(?2, '-', '')))
ORDER BY t.transmission_id
LIMIT ?4
