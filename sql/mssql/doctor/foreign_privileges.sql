-- Principals that may change the broker's tables by a grant on them, or use all of schema dialoq by one on that. A login sees its own
-- rights, and those of others if it may view definitions.
-- Takes: nothing
-- Gives: subject (the principal), amount (of tables and views; 1 for the schema), since (NULL), detail (the rights)
SELECT
    g.subject, CAST(MAX(g.objects) AS bigint) AS amount, CAST(NULL AS bigint) AS since,
    CAST(STRING_AGG(g.permission, N', ') AS nvarchar(256)) AS detail
FROM (
    SELECT r.subject, r.permission, COUNT(*) AS objects
    FROM (
        SELECT
            USER_NAME(p.grantee_principal_id) AS subject,
            CAST(p.permission_name COLLATE DATABASE_DEFAULT AS nvarchar(max)) AS permission, p.class
        FROM sys.database_permissions AS p
        LEFT JOIN sys.objects AS o ON p.class = 1 AND o.object_id = p.major_id AND o.type IN ('U', 'V')
        WHERE p.state IN ('G', 'W') AND p.grantee_principal_id <> USER_ID(N'dbo')
            AND (o.schema_id = SCHEMA_ID(N'dialoq') OR p.class = 3 AND p.major_id = SCHEMA_ID(N'dialoq'))) AS r
    WHERE r.permission IN (N'INSERT', N'UPDATE', N'DELETE', N'REFERENCES', N'ALTER', N'TAKE OWNERSHIP', N'CONTROL')
        OR r.permission = N'EXECUTE' AND r.class = 3
    GROUP BY r.subject, r.permission) AS g
GROUP BY g.subject
ORDER BY g.subject
