-- graphile-worker's add_jobs, for one job, as its add_job calls it (v0.17.3; MIT License).
-- Takes: the payload as JSON
-- Gives: the job
SELECT * FROM dialoq_bench_graphile.add_jobs(
    ARRAY[('bench', $1::text::json, NULL, NULL, NULL, NULL, NULL, NULL)::dialoq_bench_graphile.job_spec], false) LIMIT 1;
