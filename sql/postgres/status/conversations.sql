-- How many endpoints each service has in each state.
-- Takes: nothing
-- Gives: service_name, state, endpoints
SELECT s.name AS service_name, e.state, pg_catalog.count(*) AS endpoints
FROM dialoq.effective_endpoint AS e
JOIN dialoq.read_services AS s ON s.service_id = e.service_id
WHERE NOT e.is_system
GROUP BY s.service_id, s.name, e.state
ORDER BY s.name, e.state
