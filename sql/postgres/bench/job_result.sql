-- What the user's transaction of either side writes for a job.
-- Takes: the id
-- Gives: nothing
INSERT INTO dialoq_bench_result (job_id) VALUES ($1);
