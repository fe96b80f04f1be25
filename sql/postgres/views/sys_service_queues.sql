-- sys.service_queues; execute_as_principal_id is -2 for OWNER
CREATE VIEW dialoq.sys_service_queues AS
SELECT
    name, queue_id AS object_id, 'SQ'::text AS type, 'SERVICE_QUEUE'::text AS type_desc,
    coalesce(max_queue_readers, 0) AS max_readers, activation_procedure,
    CASE execute_as WHEN 'OWNER' THEN -2 END AS execute_as_principal_id,
    coalesce(is_activation_enabled, false) AS is_activation_enabled,
    is_receive_enabled, is_enqueue_enabled, is_retention_enabled, is_poison_message_handling_enabled,
    is_poison_quarantine_enabled, retry_max_attempts, retry_delay_ms, retry_factor_percent,
    retry_max_delay_ms, retry_jitter_percent, retry_then,
    off_since, off_by, off_reason
FROM dialoq.service_queue;
