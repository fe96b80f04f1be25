-- Work queues.
-- Takes: nothing
-- Gives: queue_id, name, is_enabled, work_order, has_history, take_by, max_attempts, retry_delay_ms, retry_factor_percent, max_retry_delay_ms, retry_jitter_percent, lease_ms, history_seconds, history_rows, max_taken, max_taken_per_key, rate_jobs, rate_ms, key_rate_jobs, max_queue_readers
SELECT
    queue_id, name, is_enabled, work_order, has_history, take_by, max_attempts, retry_delay_ms, retry_factor_percent,
    max_retry_delay_ms, retry_jitter_percent, lease_ms, history_seconds, history_rows, max_taken, max_taken_per_key,
    rate_jobs, rate_ms, key_rate_jobs, max_queue_readers
FROM dialoq.read_work_queues ORDER BY queue_id
