-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: service_id, name, owner, queue_id
SELECT
    service_id, name, owner, queue_id
FROM dialoq_service ORDER BY service_id
