-- The rival of SEND.
-- Takes: the body
-- Gives: nothing
INSERT INTO dialoq_bench_message (body) VALUES ($1::bytea);
