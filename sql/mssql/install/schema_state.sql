-- The state of schema dialoq, whether it can be trusted, and what this user may do. Reads SQL Server's catalog only, which
-- every user may. The owner of the schema can replace its objects, and so have every user of the broker run the owner's
-- procedures. SQL Server hides the names and roles of others from a plain user: an owner that is hidden is not trusted.
-- Takes: nothing
-- Gives: has_schema, has_installed, has_roles (they belong to the database), is_marked, objects, missing_to_use, missing_to_install,
--     missing_to_remove, distrust, user_name, database_name
SELECT
    CAST(CASE WHEN s.schema_id IS NULL THEN 0 ELSE 1 END AS bit) AS has_schema,
    CAST(CASE WHEN i.object_id IS NULL THEN 0 ELSE 1 END AS bit) AS has_installed,
    CAST(1 AS bit) AS has_roles,
    CAST(1 AS bit) AS is_marked,
    CAST((
        SELECT COUNT(*) FROM sys.objects AS o
        WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.name <> N'installed' AND o.type IN ('U', 'V', 'P', 'FN', 'IF', 'TF')
    ) AS bigint) AS objects,
    CASE
        WHEN HAS_PERMS_BY_NAME(N'dialoq.installed', N'OBJECT', N'SELECT') = 0
            THEN N'membership in the role dialoq_user'
    END AS missing_to_use,
    CASE
        WHEN HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE TABLE') = 0
            OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE PROCEDURE') = 0
            THEN N'membership in db_owner, or the rights to create schemas, tables, procedures, types and roles'
        WHEN SERVERPROPERTY('Babelfish') IS NULL AND c.compatibility_level < 130
            THEN CONCAT(N'compatibility level 130 or above: it is ', c.compatibility_level, N', and ALTER DATABASE ... SET ',
                N'COMPATIBILITY_LEVEL raises it')
    END AS missing_to_install,
    CASE
        WHEN HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE TABLE') = 0
            OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE PROCEDURE') = 0
            THEN N'membership in db_owner, or the ownership of schema dialoq'
    END AS missing_to_remove,
    CASE
        WHEN s.schema_id IS NOT NULL AND i.object_id IS NULL AND s.principal_id NOT IN (DATABASE_PRINCIPAL_ID(), 1)
            AND USER_NAME(s.principal_id) NOT IN (N'dbo', N'db_owner')
            THEN CONCAT(N'it has no broker and belongs to ''', USER_NAME(s.principal_id), N''', not to ''', USER_NAME(),
                N'''; drop it, or install as its owner')
        WHEN s.principal_id <> DATABASE_PRINCIPAL_ID()
            AND COALESCE(USER_NAME(s.principal_id), N'') NOT IN (N'dbo', N'db_owner')
            AND COALESCE(IS_ROLEMEMBER(N'db_owner', USER_NAME(s.principal_id)), 0) = 0
            AND COALESCE(IS_ROLEMEMBER(N'dialoq_admin', USER_NAME(s.principal_id)), 0) = 0
            THEN CONCAT(N'it belongs to ''', COALESCE(USER_NAME(s.principal_id), N'a user that your rights do not show'),
                N''', who is not known to be a member of db_owner or dialoq_admin; ',
                N'ALTER AUTHORIZATION ON SCHEMA::dialoq TO dbo makes it the database owner''s and drops all rights in it; ',
                N'UPDATE dialoq.installed SET logic_hash = N'''' and dialoq install grant them again')
        WHEN EXISTS (
            SELECT 1 FROM sys.objects AS o
            WHERE o.schema_id = s.schema_id AND o.principal_id <> s.principal_id AND o.type IN ('U', 'V', 'P', 'FN', 'IF', 'TF'))
            THEN CONCAT(N'some of its objects belong to others than its owner ''', USER_NAME(s.principal_id),
                N'''; give all of them one owner')
    END AS distrust,
    CAST(USER_NAME() AS nvarchar(256)) AS user_name,
    CAST(DB_NAME() AS nvarchar(256)) AS database_name
-- In Azure SQL Database DB_ID() is another number than sys.databases has.
FROM (SELECT (SELECT d.compatibility_level FROM sys.databases AS d WHERE d.name = DB_NAME()) AS compatibility_level) AS c
LEFT JOIN sys.schemas AS s ON s.name = N'dialoq'
LEFT JOIN sys.tables AS i ON i.schema_id = s.schema_id AND i.name = N'installed'
