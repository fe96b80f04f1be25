-- graphile-worker's statement get_job, with its strategy 2 (github.com/graphile/worker, src/sql/getJobs.ts, v0.17.3, commit
-- abfb4cf; MIT License, copyright 2019 Benjie Gillam).
-- Takes: the worker
-- Gives: the job
with j as (
  select jobs.job_queue_id, jobs.priority, jobs.run_at, jobs.id
    from dialoq_bench_graphile._private_jobs as jobs
    where jobs.is_available = true
    and run_at <= now()
    and task_id = any(ARRAY[1]::int[])
    and (
      jobs.job_queue_id is null
      or
      jobs.job_queue_id in (
        select id
        from dialoq_bench_graphile._private_job_queues as job_queues
        where job_queues.is_available = true
        for update
        skip locked
      )
    )
    order by priority asc, run_at asc
    limit 1
    for update
    skip locked
),
q as (
  update dialoq_bench_graphile._private_job_queues as job_queues
    set
      locked_by = $1::text,
      locked_at = now()
    from j
    where job_queues.id = j.job_queue_id
)
  update dialoq_bench_graphile._private_jobs as jobs
    set
      attempts = jobs.attempts + 1,
      locked_by = $1::text,
      locked_at = now()
    from j
    where jobs.id = j.id
    returning *;
