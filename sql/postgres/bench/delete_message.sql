-- The rival of RECEIVE: the oldest row that no other session has locked.
-- Takes: nothing
-- Gives: body
DELETE FROM dialoq_bench_message
WHERE id = (SELECT id FROM dialoq_bench_message ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1)
RETURNING body;
