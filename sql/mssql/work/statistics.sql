-- How long jobs waited to be taken (from the push to the last taking) and to be completed (from there), over the history. A
-- percentile is the first value that so many of the jobs do not exceed. Names are compared to their last space.
-- Takes: @P1 queue or NULL, @P2 by: queue, reader or writer
-- Gives: queue, name, jobs, take_avg_us, take_p50_us, take_p95_us, take_p99_us, complete_avg_us, complete_p50_us, complete_p95_us, complete_p99_us
SELECT
    r.queue, r.name, MAX(r.jobs) AS jobs,
    CAST(AVG(r.take_us) AS bigint) AS take_avg_us,
    MIN(CASE WHEN r.take_place * 100 >= 50 * r.jobs THEN r.take_us END) AS take_p50_us,
    MIN(CASE WHEN r.take_place * 100 >= 95 * r.jobs THEN r.take_us END) AS take_p95_us,
    MIN(CASE WHEN r.take_place * 100 >= 99 * r.jobs THEN r.take_us END) AS take_p99_us,
    CAST(AVG(r.complete_us) AS bigint) AS complete_avg_us,
    MIN(CASE WHEN r.complete_place * 100 >= 50 * r.jobs THEN r.complete_us END) AS complete_p50_us,
    MIN(CASE WHEN r.complete_place * 100 >= 95 * r.jobs THEN r.complete_us END) AS complete_p95_us,
    MIN(CASE WHEN r.complete_place * 100 >= 99 * r.jobs THEN r.complete_us END) AS complete_p99_us
FROM (
    SELECT
        t.queue, t.name, t.name_bytes, t.take_us, t.complete_us,
        COUNT_BIG(*) OVER (PARTITION BY t.queue, t.name, t.name_bytes) AS jobs,
        ROW_NUMBER() OVER (PARTITION BY t.queue, t.name, t.name_bytes ORDER BY t.take_us) AS take_place,
        ROW_NUMBER() OVER (PARTITION BY t.queue, t.name, t.name_bytes ORDER BY t.complete_us) AS complete_place
    FROM (
        SELECT
            q.name COLLATE Latin1_General_100_BIN2 AS queue,
            CASE CAST(@P2 AS nvarchar(16)) WHEN N'reader' THEN h.taken_by WHEN N'writer' THEN h.pushed_by ELSE N'' END AS name,
            CASE CAST(@P2 AS nvarchar(16)) WHEN N'reader' THEN DATALENGTH(h.taken_by) WHEN N'writer' THEN DATALENGTH(h.pushed_by) END
                AS name_bytes,
            h.taken_at - h.pushed_at AS take_us, h.finished_at - h.taken_at AS complete_us
        FROM dialoq.read_job_history AS h
        JOIN dialoq.read_work_queues AS q ON q.queue_id = h.queue_id
        WHERE h.finished_as = 4 AND h.taken_at IS NOT NULL
            AND (@P1 IS NULL OR q.folded_name = TRANSLATE(CAST(@P1 AS nvarchar(4000)) COLLATE Latin1_General_100_BIN2,
                N'ABCDEFGHIJKLMNOPQRSTUVWXYZ', N'abcdefghijklmnopqrstuvwxyz'))
    ) AS t
) AS r
GROUP BY r.queue, r.name, r.name_bytes
ORDER BY LOWER(r.queue), jobs DESC, r.name
