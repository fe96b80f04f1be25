-- graphile-worker's statement complete_job of a job without a queue (github.com/graphile/worker, src/sql/completeJobs.ts, v0.17.3,
-- commit abfb4cf; MIT License, copyright 2019 Benjie Gillam).
-- Takes: the id
-- Gives: nothing
delete from dialoq_bench_graphile._private_jobs as jobs
where id = $1::bigint;
