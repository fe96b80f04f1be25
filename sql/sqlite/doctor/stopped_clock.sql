-- Nothing: the clock of an embedded store is that of the process which owns the file.
-- Takes: nothing
-- Gives: subject ('broker'), amount (1), since (where it stands), detail (NULL)
SELECT 'broker' AS subject, 1 AS amount, 0 AS since, NULL AS detail
WHERE 0
