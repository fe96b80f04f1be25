-- Nothing: an embedded store knows no roles.
-- Takes: nothing
-- Gives: subject (a login), amount (1), since (NULL), detail (the role)
SELECT '' AS subject, 0 AS amount, NULL AS since, NULL AS detail
WHERE 0
