-- The rival of many SENDs: one INSERT of as many rows.
-- Takes: the bodies
-- Gives: nothing
INSERT INTO dialoq_bench_message (body) SELECT b.body FROM unnest($1::bytea[]) AS b (body);
