-- Puts jobs into River's table, all with the same arguments; it is not measured.
-- Takes: the arguments as JSON, how many
-- Gives: nothing
INSERT INTO dialoq_bench_river.river_job (args, kind) SELECT $1::text::jsonb, 'bench' FROM generate_series(1, $2::bigint);
