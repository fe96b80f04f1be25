-- Frees a unique name.
-- Takes: ?1 queue_id, ?2 unique_key
-- Gives: nothing
DELETE FROM dialoq_unique_job WHERE queue_id = ?1 AND unique_key = ?2
