-- The rival of SEND.
-- Takes: the body
-- Gives: nothing
INSERT INTO dbo.dialoq_bench_message (body) VALUES (@P1);
