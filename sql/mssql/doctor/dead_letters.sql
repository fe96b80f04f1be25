-- Dead letters that wait for a redrive or a purge.
-- Takes: nothing
-- Gives: subject (the queue), amount (of dead letters), since (when the first of them died), detail (NULL)
SELECT
    d.queue_name COLLATE Latin1_General_100_BIN2 AS subject, COUNT_BIG(*) AS amount, DATEDIFF_BIG(microsecond, '1970-01-01', MIN(d.died_at)) AS since,
    CAST(NULL AS nvarchar(256)) AS detail
FROM dialoq.dead_letters AS d
GROUP BY d.queue_name COLLATE Latin1_General_100_BIN2
ORDER BY amount DESC, subject
