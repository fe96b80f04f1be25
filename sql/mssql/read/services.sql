-- Services.
-- Takes: nothing
-- Gives: service_id, name, owner, queue_id
SELECT
    service_id, name, owner, queue_id
FROM dialoq.read_services ORDER BY service_id
