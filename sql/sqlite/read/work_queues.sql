-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: queue_id, name, is_enabled, work_order, has_history, take_by, max_attempts, retry_delay_ms, retry_factor_percent, max_retry_delay_ms, retry_jitter_percent, lease_ms, history_seconds, history_rows, max_taken, max_taken_per_key, rate_jobs, rate_ms, key_rate_jobs, max_queue_readers
SELECT
    q.queue_id, q.name, q.is_enabled, q.work_order, q.has_history, q.take_by, q.max_attempts, q.retry_delay_ms,
    q.retry_factor_percent, q.max_retry_delay_ms, q.retry_jitter_percent, q.lease_ms, q.history_seconds,
    q.history_rows, q.max_taken, q.max_taken_per_key, q.rate_jobs, q.rate_ms, q.key_rate_jobs, q.max_queue_readers
FROM dialoq_work_queue AS q ORDER BY q.queue_id
