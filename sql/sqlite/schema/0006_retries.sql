-- The retry policy of a queue (NULL: none), and how far the attempts at a conversation group are.

ALTER TABLE dialoq_service_queue ADD COLUMN retry_max_attempts INTEGER;
ALTER TABLE dialoq_service_queue ADD COLUMN retry_delay_ms INTEGER;
ALTER TABLE dialoq_service_queue ADD COLUMN retry_factor_percent INTEGER;
ALTER TABLE dialoq_service_queue ADD COLUMN retry_max_delay_ms INTEGER;
ALTER TABLE dialoq_service_queue ADD COLUMN retry_jitter_percent INTEGER;
ALTER TABLE dialoq_service_queue ADD COLUMN retry_then TEXT;

-- Rollbacks in a row that gave back messages of its group, and when its quarantine ends by itself (NULL: never).
ALTER TABLE dialoq_conversation_endpoint ADD COLUMN rollbacks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dialoq_conversation_endpoint ADD COLUMN retry_at INTEGER;
