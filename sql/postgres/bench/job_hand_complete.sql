-- The rival of a completion: marks the row again.
-- Takes: the id
-- Gives: nothing
UPDATE dialoq_bench_job SET status = 2, completed_at = now() WHERE id = $1::bigint AND status = 1;
