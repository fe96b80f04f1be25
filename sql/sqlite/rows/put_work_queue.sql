-- Writes a work queue, new or not.
-- Takes: ?1 queue_id, ?2 name, ?3 is_enabled, ?4 work_order, ?5 has_history, ?6 take_by, ?7 max_attempts, ?8 retry_delay_ms, ?9 retry_factor_percent, ?10 max_retry_delay_ms, ?11 retry_jitter_percent, ?12 lease_ms, ?13 history_seconds, ?14 history_rows, ?15 max_taken, ?16 max_taken_per_key, ?17 rate_jobs, ?18 rate_ms, ?19 key_rate_jobs, ?20 max_queue_readers
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_work_queue (
    queue_id, name, is_enabled, work_order, has_history, take_by, max_attempts, retry_delay_ms, retry_factor_percent,
    max_retry_delay_ms, retry_jitter_percent, lease_ms, history_seconds, history_rows, max_taken, max_taken_per_key,
    rate_jobs, rate_ms, key_rate_jobs, max_queue_readers
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
