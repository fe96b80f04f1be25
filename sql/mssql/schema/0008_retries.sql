-- The retry policy of a queue (NULL: none), and when the quarantine of a conversation group ends by itself (NULL: never).
ALTER TABLE dialoq.service_queue ADD retry_max_attempts int NULL;
GO
ALTER TABLE dialoq.service_queue ADD retry_delay_ms bigint NULL;
GO
ALTER TABLE dialoq.service_queue ADD retry_factor_percent bigint NULL;
GO
ALTER TABLE dialoq.service_queue ADD retry_max_delay_ms bigint NULL;
GO
ALTER TABLE dialoq.service_queue ADD retry_jitter_percent bigint NULL;
GO
ALTER TABLE dialoq.service_queue ADD retry_then nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL;
GO
ALTER TABLE dialoq.conversation_endpoint ADD retry_at datetime2(6) NULL;
GO
