-- Puts jobs into graphile-worker's table, all of one payload; it is not measured.
-- Takes: the payload as JSON, how many
-- Gives: nothing
INSERT INTO dialoq_bench_graphile._private_jobs (task_id, payload) SELECT 1, $1::text::json FROM generate_series(1, $2::bigint);
