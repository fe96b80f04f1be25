-- What became of conversations that were sent on: both sides of each, with what waits to be delivered. No message is read.
-- Takes: @P1 handles and conversation ids with commas between them
-- Gives: conversation_handle, conversation_id, is_initiator, state, service_name, far_service, far_broker_instance, service_contract_name, undelivered, transmission_status
SELECT
    CONVERT(nvarchar(36), e.conversation_handle) AS conversation_handle, CONVERT(nvarchar(36), e.conversation_id) AS conversation_id,
    e.is_initiator, e.state, s.name AS service_name, e.far_service, e.far_broker_instance, c.name AS service_contract_name,
    t.messages AS undelivered, t.status AS transmission_status
FROM dialoq.effective_endpoint AS e
LEFT JOIN dialoq.read_services AS s ON s.service_id = e.service_id
LEFT JOIN dialoq.read_service_contracts AS c ON c.service_contract_id = e.service_contract_id
CROSS APPLY (
    SELECT COUNT_BIG(*) AS messages, MAX(x.status) AS status
    FROM dialoq.effective_transmission AS x WHERE x.endpoint_id = e.endpoint_id
) AS t
WHERE e.conversation_handle IN (
        SELECT CAST(v.value AS uniqueidentifier) FROM STRING_SPLIT(CAST(@P1 AS nvarchar(max)), N',') AS v)
    OR e.conversation_id IN (
        SELECT CAST(v.value AS uniqueidentifier) FROM STRING_SPLIT(CAST(@P1 AS nvarchar(max)), N',') AS v)
