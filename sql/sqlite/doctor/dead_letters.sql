-- Dead letters that wait for a redrive or a purge.
-- Takes: nothing
-- Gives: subject (the queue), amount (of dead letters), since (when the first of them died), detail (NULL)
SELECT d.queue_name AS subject, count(*) AS amount, min(d.died_at) AS since, NULL AS detail
FROM dialoq_dead_letter AS d
GROUP BY d.queue_name
ORDER BY amount DESC, subject
