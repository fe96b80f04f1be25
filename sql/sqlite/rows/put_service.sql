-- Writes a service, new or not.
-- Takes: ?1 service_id, ?2 name, ?3 owner, ?4 queue_id
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_service (
    service_id, name, owner, queue_id
) VALUES (?1, ?2, ?3, ?4)
