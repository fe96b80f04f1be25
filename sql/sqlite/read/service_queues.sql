-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: queue_id, name, is_receive_enabled, is_enqueue_enabled, is_retention_enabled, is_poison_message_handling_enabled, is_poison_quarantine_enabled, is_activation_enabled, activation_procedure, max_queue_readers, execute_as, execute_as_user, retry_max_attempts, retry_delay_ms, retry_factor_percent, retry_max_delay_ms, retry_jitter_percent, retry_then, off_since (microseconds of UTC), off_by, off_reason
SELECT
    queue_id, name, is_receive_enabled, is_enqueue_enabled, is_retention_enabled,
    is_poison_message_handling_enabled, is_poison_quarantine_enabled, is_activation_enabled,
    activation_procedure, max_queue_readers, execute_as, execute_as_user, retry_max_attempts, retry_delay_ms, retry_factor_percent,
    retry_max_delay_ms, retry_jitter_percent, retry_then,
    off_since, off_by, off_reason
FROM dialoq_service_queue ORDER BY queue_id
