-- Writes a queue, new or not.
-- Takes: ?1 queue_id, ?2 name, ?3 is_receive_enabled, ?4 is_enqueue_enabled, ?5 is_retention_enabled, ?6 is_poison_message_handling_enabled, ?7 is_poison_quarantine_enabled, ?8 is_activation_enabled, ?9 activation_procedure, ?10 max_queue_readers, ?11 execute_as, ?12 execute_as_user, ?13 retry_max_attempts, ?14 retry_delay_ms, ?15 retry_factor_percent, ?16 retry_max_delay_ms, ?17 retry_jitter_percent, ?18 retry_then, ?19 off_since, ?20 off_by, ?21 off_reason
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_service_queue (
    queue_id, name, is_receive_enabled, is_enqueue_enabled, is_retention_enabled,
    is_poison_message_handling_enabled, is_poison_quarantine_enabled, is_activation_enabled,
    activation_procedure, max_queue_readers, execute_as, execute_as_user, retry_max_attempts, retry_delay_ms, retry_factor_percent,
    retry_max_delay_ms, retry_jitter_percent, retry_then, off_since, off_by, off_reason
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)
