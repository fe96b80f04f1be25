-- The retry policy of a queue (NULL: none), and when the quarantine of a conversation group ends by itself (NULL: never).

ALTER TABLE dialoq.service_queue
    ADD COLUMN retry_max_attempts integer,
    ADD COLUMN retry_delay_ms bigint,
    ADD COLUMN retry_factor_percent bigint,
    ADD COLUMN retry_max_delay_ms bigint,
    ADD COLUMN retry_jitter_percent bigint,
    ADD COLUMN retry_then text;
ALTER TABLE dialoq.conversation_endpoint ADD COLUMN retry_at timestamptz;
