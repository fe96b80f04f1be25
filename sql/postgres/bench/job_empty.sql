-- Empties the rivals' tables; it is not measured.
-- Takes: nothing
-- Gives: nothing
TRUNCATE dialoq_bench_job, dialoq_bench_result, dialoq_bench_river.river_job, dialoq_bench_graphile._private_jobs;
