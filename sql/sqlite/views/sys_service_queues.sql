-- sys.service_queues; execute_as_principal_id is -2 for OWNER
CREATE VIEW sys_service_queues AS
SELECT
    name, queue_id AS object_id, 'SQ' AS type, 'SERVICE_QUEUE' AS type_desc,
    coalesce(max_queue_readers, 0) AS max_readers, activation_procedure,
    CASE execute_as WHEN 'OWNER' THEN -2 END AS execute_as_principal_id,
    coalesce(is_activation_enabled, 0) AS is_activation_enabled,
    is_receive_enabled, is_enqueue_enabled, is_retention_enabled, is_poison_message_handling_enabled,
    is_poison_quarantine_enabled, retry_max_attempts, retry_delay_ms, retry_factor_percent,
    retry_max_delay_ms, retry_jitter_percent, retry_then,
    CASE WHEN off_since IS NOT NULL
        THEN datetime(off_since / 1000000, 'unixepoch') || printf('.%06d', off_since % 1000000) END AS off_since, off_by, off_reason
FROM dialoq_service_queue;
