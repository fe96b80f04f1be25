-- Nothing: an embedded store knows no roles.
-- Takes: nothing
-- Gives: subject (a role), amount (of tables), since (NULL), detail (the rights)
SELECT '' AS subject, 0 AS amount, NULL AS since, NULL AS detail
WHERE 0
