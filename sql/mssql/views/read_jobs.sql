-- Jobs for those who look at them; times in microseconds since 1970.
CREATE VIEW dialoq.read_jobs AS
SELECT
    j.job_id, j.queue_id, j.job_type, j.job_key, CAST(j.level AS int) AS level, CAST(j.state AS int) AS state, j.attempts,
    j.token, DATEDIFF_BIG(microsecond, '1970-01-01', j.due_at) AS due_at,
    DATEDIFF_BIG(microsecond, '1970-01-01', j.pushed_at) AS pushed_at, j.pushed_by,
    DATEDIFF_BIG(microsecond, '1970-01-01', j.taken_at) AS taken_at, j.taken_by,
    DATEDIFF_BIG(microsecond, '1970-01-01', j.failed_at) AS failed_at, j.last_error, j.progress, j.body
FROM dialoq.job AS j;
GO
CREATE VIEW dialoq.read_job_history AS
SELECT
    h.queue_id, h.finish_number, h.job_id, h.job_type, h.job_key, CAST(h.level AS int) AS level,
    CAST(h.finished_as AS int) AS finished_as, h.attempts, DATEDIFF_BIG(microsecond, '1970-01-01', h.pushed_at) AS pushed_at,
    h.pushed_by, DATEDIFF_BIG(microsecond, '1970-01-01', h.taken_at) AS taken_at, h.taken_by,
    DATEDIFF_BIG(microsecond, '1970-01-01', h.finished_at) AS finished_at, h.last_error, h.result
FROM dialoq.job_history AS h;
GO
