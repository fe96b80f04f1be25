-- Puts rows into the rival's table, all of one body; it is not measured.
-- Takes: the body, how many
-- Gives: nothing
INSERT INTO dialoq_bench_job (body) SELECT $1::bytea FROM generate_series(1, $2::bigint);
