-- Messages in the transmission queue, in order. A parameter that is NULL chooses nothing.
-- Takes: @P1 conversation_handle, @P2 message_id, @P3 at most so many bytes of each body, @P4 at most so many
-- Gives: conversation_handle, from_service, to_service, service_contract_name, priority, sequence, message_type_name, message_id, is_conversation_error, is_end_of_dialog, enqueued_at (microseconds of UTC), body, body_bytes, transmission_status
SELECT TOP (CAST(@P4 AS bigint))
    CONVERT(nvarchar(36), e.conversation_handle) AS conversation_handle, s.name AS from_service, e.far_service AS to_service,
    c.name AS service_contract_name, CAST(t.priority AS int) AS priority, t.sequence, m.name AS message_type_name,
    CONVERT(nvarchar(36), t.message_id) AS message_id, t.is_conversation_error, t.is_end_of_dialog,
    DATEDIFF_BIG(microsecond, '1970-01-01', t.enqueued_at) AS enqueued_at,
    SUBSTRING(t.body, 1, CAST(@P3 AS int)) AS body, COALESCE(DATALENGTH(t.body), 0) AS body_bytes,
    t.status AS transmission_status
FROM dialoq.effective_transmission AS t
JOIN dialoq.effective_endpoint AS e ON e.endpoint_id = t.endpoint_id
LEFT JOIN dialoq.read_services AS s ON s.service_id = e.service_id
LEFT JOIN dialoq.read_service_contracts AS c ON c.service_contract_id = e.service_contract_id
LEFT JOIN dialoq.read_message_types AS m ON m.message_type_id = t.message_type_id
WHERE (@P1 IS NULL OR e.conversation_handle = CAST(@P1 AS uniqueidentifier))
    AND (@P2 IS NULL OR t.message_id = CAST(@P2 AS uniqueidentifier))
ORDER BY t.transmission_id
