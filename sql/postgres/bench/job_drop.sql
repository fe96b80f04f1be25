-- Removes the rivals of work queues.
-- Takes: nothing
-- Gives: nothing
DROP TABLE IF EXISTS dialoq_bench_job, dialoq_bench_result;
DROP SCHEMA IF EXISTS dialoq_bench_river CASCADE;
DROP SCHEMA IF EXISTS dialoq_bench_graphile CASCADE;
