-- How long jobs waited to be taken (from the push to the last taking) and to be completed (from there), over the history.
-- Takes: $1 queue or NULL, $2 by: queue, reader or writer
-- Gives: queue, name, jobs, take_avg_us, take_p50_us, take_p95_us, take_p99_us, complete_avg_us, complete_p50_us, complete_p95_us, complete_p99_us
SELECT
    t.queue, t.name, pg_catalog.count(*) AS jobs,
    pg_catalog.trunc(pg_catalog.avg(t.take_us))::bigint AS take_avg_us,
    pg_catalog.percentile_disc(0.5) WITHIN GROUP (ORDER BY t.take_us) AS take_p50_us,
    pg_catalog.percentile_disc(0.95) WITHIN GROUP (ORDER BY t.take_us) AS take_p95_us,
    pg_catalog.percentile_disc(0.99) WITHIN GROUP (ORDER BY t.take_us) AS take_p99_us,
    pg_catalog.trunc(pg_catalog.avg(t.complete_us))::bigint AS complete_avg_us,
    pg_catalog.percentile_disc(0.5) WITHIN GROUP (ORDER BY t.complete_us) AS complete_p50_us,
    pg_catalog.percentile_disc(0.95) WITHIN GROUP (ORDER BY t.complete_us) AS complete_p95_us,
    pg_catalog.percentile_disc(0.99) WITHIN GROUP (ORDER BY t.complete_us) AS complete_p99_us
FROM (
    SELECT
        q.name AS queue,
        CASE $2::text WHEN 'reader' THEN h.taken_by WHEN 'writer' THEN h.pushed_by ELSE '' END AS name,
        h.taken_at - h.pushed_at AS take_us, h.finished_at - h.taken_at AS complete_us
    FROM dialoq.read_job_history AS h
    JOIN dialoq.read_work_queues AS q ON q.queue_id = h.queue_id
    WHERE h.finished_as = 4 AND h.taken_at IS NOT NULL
        AND ($1::text IS NULL OR pg_catalog.lower(q.name COLLATE "C") = pg_catalog.lower($1 COLLATE "C"))
) AS t
GROUP BY t.queue, t.name
ORDER BY pg_catalog.lower(t.queue), jobs DESC, t.name
