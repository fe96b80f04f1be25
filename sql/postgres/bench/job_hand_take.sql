-- The rival of a take: marks the oldest pending row that no other session has locked.
-- Takes: the reader
-- Gives: id, body
UPDATE dialoq_bench_job SET status = 1, taken_at = now(), taken_by = $1::text
WHERE id = (SELECT id FROM dialoq_bench_job WHERE status = 0 ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1)
RETURNING id, body;
