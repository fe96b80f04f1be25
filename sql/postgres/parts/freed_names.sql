-- The names of unique jobs that the finished jobs gone held until their end are free.
DELETE FROM dialoq.unique_job AS u
WHERE u.ctid = ANY (ARRAY(
    SELECT n.ctid
    FROM gone AS g
    CROSS JOIN LATERAL (
        SELECT o.ctid FROM dialoq.unique_job AS o
        WHERE o.queue_id = g.queue_id AND o.unique_key = g.unique_key AND o.job_id = g.job_id AND o.until_at IS NULL
        OFFSET 0) AS n
    WHERE g.unique_key IS NOT NULL))
