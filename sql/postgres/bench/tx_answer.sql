-- The rival of an answer.
-- Takes: the body
-- Gives: nothing
INSERT INTO dialoq_bench_answer (body) VALUES ($1::bytea);
