-- Removes the dead rows of earlier rounds of all sides, so that no round pays for another. It is not measured.
-- Takes: nothing
-- Gives: nothing
VACUUM ANALYZE dialoq.job, dialoq_bench_job, dialoq_bench_river.river_job, dialoq_bench_graphile._private_jobs;
