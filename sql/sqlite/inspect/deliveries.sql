-- What became of conversations that were sent on: both sides of each, with what waits to be delivered. No message is read.
-- Takes: ?1 handles and conversation ids with commas between them
-- Gives: conversation_handle, conversation_id, is_initiator, state, service_name, far_service, far_broker_instance, service_contract_name, undelivered, transmission_status
WITH RECURSIVE place (number) AS (
    -- Each id takes 37 characters.
    SELECT 0 UNION ALL SELECT p.number + 37 FROM place AS p WHERE p.number + 37 < length(?1)
), asked (id) AS MATERIALIZED (
    SELECT upper(replace(substr(?1, p.number + 1, 36), '-', '')) FROM place AS p
)
SELECT
    hex(e.conversation_handle) AS conversation_handle, hex(e.conversation_id) AS conversation_id, e.is_initiator, e.state,
    s.name AS service_name, e.far_service, e.far_broker_instance, c.name AS service_contract_name,
    coalesce(t.messages, 0) AS undelivered, t.status AS transmission_status
FROM dialoq_conversation_endpoint AS e
LEFT JOIN dialoq_service AS s ON s.service_id = e.service_id
LEFT JOIN dialoq_service_contract AS c ON c.service_contract_id = e.service_contract_id
LEFT JOIN (
    SELECT endpoint_id, count(*) AS messages, max(status) AS status FROM dialoq_transmission GROUP BY endpoint_id
) AS t ON t.endpoint_id = e.endpoint_id
WHERE hex(e.conversation_handle) IN (SELECT a.id FROM asked AS a)
    OR hex(e.conversation_id) IN (SELECT a.id FROM asked AS a)
