-- The clock of the database, if a broker with a manual clock has stopped it.
-- Takes: nothing
-- Gives: subject ('broker'), amount (1), since (where it stands), detail (NULL)
SELECT 'broker' AS subject, 1::bigint AS amount, (extract(epoch FROM b.now_at) * 1000000.0)::bigint AS since, NULL::text AS detail
FROM dialoq.read_broker AS b
WHERE b.is_manual_now
