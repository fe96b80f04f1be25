-- Dead letters that wait for a redrive or a purge.
-- Takes: nothing
-- Gives: subject (the queue), amount (of dead letters), since (when the first of them died), detail (NULL)
SELECT
    d.queue_name AS subject, pg_catalog.count(*) AS amount,
    (extract(epoch FROM pg_catalog.min(d.died_at)) * 1000000.0)::bigint AS since, NULL::text AS detail
FROM dialoq.dead_letters AS d
GROUP BY d.queue_name
ORDER BY amount DESC, subject
