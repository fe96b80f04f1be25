-- Writes a work queue, new or not.
-- Takes: ?1 queue_id, ?2 name, ?3 is_enabled, ?4 work_order, ?5 has_history, ?6 max_attempts, ?7 retry_delay_ms, ?8 retry_factor_percent, ?9 max_retry_delay_ms, ?10 retry_jitter_percent, ?11 lease_ms, ?12 history_seconds, ?13 history_rows, ?14 max_taken, ?15 max_taken_per_key, ?16 rate_jobs, ?17 rate_ms, ?18 key_rate_jobs, ?19 max_queue_readers
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_work_queue (
    queue_id, name, is_enabled, work_order, has_history, max_attempts, retry_delay_ms, retry_factor_percent,
    max_retry_delay_ms, retry_jitter_percent, lease_ms, history_seconds, history_rows, max_taken, max_taken_per_key,
    rate_jobs, rate_ms, key_rate_jobs, max_queue_readers
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
