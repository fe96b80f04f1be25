-- Jobs for those who look at them; times in microseconds since 1970.

CREATE VIEW dialoq.read_jobs AS
SELECT
    j.job_id, j.queue_id, j.job_type, j.job_key, j.level::integer AS level, j.state::integer AS state, j.attempts, j.token,
    (extract(epoch FROM j.due_at) * 1000000)::bigint AS due_at, (extract(epoch FROM j.pushed_at) * 1000000)::bigint AS pushed_at,
    j.pushed_by, (extract(epoch FROM j.taken_at) * 1000000)::bigint AS taken_at, j.taken_by,
    (extract(epoch FROM j.failed_at) * 1000000)::bigint AS failed_at, j.last_error, j.progress, j.body
FROM dialoq.job AS j;

CREATE VIEW dialoq.read_job_history AS
SELECT
    h.queue_id, h.finish_number, h.job_id, h.job_type, h.job_key, h.level::integer AS level,
    h.finished_as::integer AS finished_as, h.attempts, (extract(epoch FROM h.pushed_at) * 1000000)::bigint AS pushed_at,
    h.pushed_by, (extract(epoch FROM h.taken_at) * 1000000)::bigint AS taken_at, h.taken_by,
    (extract(epoch FROM h.finished_at) * 1000000)::bigint AS finished_at, h.last_error, h.result
FROM dialoq.job_history AS h;
