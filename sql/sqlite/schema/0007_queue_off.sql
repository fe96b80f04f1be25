-- Since when a queue is off, what turned it off ('statement' or 'poison'), and the reason that a statement gave.
ALTER TABLE dialoq_service_queue ADD COLUMN off_since INTEGER;
ALTER TABLE dialoq_service_queue ADD COLUMN off_by TEXT;
ALTER TABLE dialoq_service_queue ADD COLUMN off_reason TEXT;
