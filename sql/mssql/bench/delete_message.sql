-- The rival of RECEIVE: the oldest row that no other session has locked. On a server that ignores READPAST and UPDLOCK two may
-- choose one row; then one of them gets nothing and asks again.
-- Takes: nothing
-- Gives: body
DELETE FROM dbo.dialoq_bench_message WITH (ROWLOCK) OUTPUT deleted.body
WHERE id = (SELECT TOP (1) id FROM dbo.dialoq_bench_message WITH (ROWLOCK, UPDLOCK, READPAST) ORDER BY id);
