-- What became of conversations that were sent on: both sides of each, with what waits to be delivered. No message is read.
-- Takes: $1 handles and conversation ids with commas between them
-- Gives: conversation_handle, conversation_id, is_initiator, state, service_name, far_service, far_broker_instance, service_contract_name, undelivered, transmission_status
SELECT
    e.conversation_handle::text AS conversation_handle, e.conversation_id::text AS conversation_id, e.is_initiator, e.state,
    s.name AS service_name, e.far_service, e.far_broker_instance, c.name AS service_contract_name,
    t.messages AS undelivered, t.status AS transmission_status
FROM dialoq.effective_endpoint AS e
LEFT JOIN dialoq.read_services AS s ON s.service_id = e.service_id
LEFT JOIN dialoq.read_service_contracts AS c ON c.service_contract_id = e.service_contract_id
CROSS JOIN LATERAL (
    SELECT pg_catalog.count(*) AS messages, pg_catalog.max(x.status) AS status
    FROM dialoq.effective_transmission AS x WHERE x.endpoint_id = e.endpoint_id
) AS t
WHERE e.conversation_handle = ANY (pg_catalog.string_to_array($1::text, ',')::uuid[])
    OR e.conversation_id = ANY (pg_catalog.string_to_array($1::text, ',')::uuid[])
