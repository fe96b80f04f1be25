-- Puts rows into the rival, all of one body; nobody measures it.
-- Takes: the body, how many
-- Gives: nothing
INSERT INTO dialoq_bench_message (body) SELECT $1::bytea FROM generate_series(1, $2::bigint);
