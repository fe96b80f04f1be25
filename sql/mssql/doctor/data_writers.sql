-- Users that may write every table of the database, and so the broker's past its procedures: members of db_datawriter, also by other
-- roles. Members of db_owner may anyway, and are not named, nor are members of db_datareader: a login for reports or backups is one. A
-- user sees its own memberships, and those of others if it may view definitions.
-- Takes: nothing
-- Gives: subject (the user), amount (1), since (NULL), detail (the role)
WITH members AS (
    SELECT m.member_principal_id AS principal_id, 1 AS depth
    FROM sys.database_role_members AS m
    JOIN sys.database_principals AS w ON w.principal_id = m.role_principal_id
    WHERE w.name COLLATE DATABASE_DEFAULT = N'db_datawriter'
    UNION ALL
    SELECT m.member_principal_id, b.depth + 1
    FROM members AS b
    JOIN sys.database_role_members AS m ON m.role_principal_id = b.principal_id
    WHERE b.depth < 20
)
SELECT DISTINCT
    CAST(p.name AS nvarchar(128)) AS subject, CAST(1 AS bigint) AS amount, CAST(NULL AS bigint) AS since,
    CAST(N'db_datawriter' AS nvarchar(256)) AS detail
FROM members AS b
JOIN sys.database_principals AS p ON p.principal_id = b.principal_id
WHERE p.type COLLATE DATABASE_DEFAULT <> N'R'
    AND COALESCE(IS_ROLEMEMBER(N'db_owner', p.name), 0) = 0
ORDER BY subject
