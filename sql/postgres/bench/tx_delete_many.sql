-- The rival of RECEIVE TOP n: the oldest rows that no other session has locked.
-- Takes: how many
-- Gives: body
DELETE FROM dialoq_bench_message
WHERE id = ANY (ARRAY(SELECT id FROM dialoq_bench_message ORDER BY id FOR UPDATE SKIP LOCKED LIMIT $1::bigint))
RETURNING body;
