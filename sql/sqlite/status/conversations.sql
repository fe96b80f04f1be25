-- How many endpoints each service has in each state.
-- Takes: nothing
-- Gives: service_name, state, endpoints
SELECT s.name AS service_name, e.state, count(*) AS endpoints
FROM dialoq_conversation_endpoint AS e
JOIN dialoq_service AS s ON s.service_id = e.service_id
WHERE e.is_system = 0
GROUP BY s.service_id, e.state
ORDER BY s.name, e.state
