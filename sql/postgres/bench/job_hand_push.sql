-- The rival of a push: one row.
-- Takes: the body
-- Gives: nothing
INSERT INTO dialoq_bench_job (body) VALUES ($1::bytea);
