-- The clock of the database, if a broker with a manual clock has stopped it.
-- Takes: nothing
-- Gives: subject ('broker'), amount (1), since (where it stands), detail (NULL)
SELECT N'broker' AS subject, CAST(1 AS bigint) AS amount, DATEDIFF_BIG(microsecond, '1970-01-01', b.now_at) AS since, CAST(NULL AS nvarchar(256)) AS detail
FROM dialoq.read_broker AS b
WHERE b.is_manual_now = 1
