-- What stands in the database, and what this user may do. Reads SQL Server's catalog only, which everybody may.
-- Takes: nothing
-- Gives: has_schema, has_installed, objects, missing_to_use, missing_to_install, missing_to_remove, distrust, user_name, database_name
SELECT
    CAST(CASE WHEN SCHEMA_ID(N'dialoq') IS NULL THEN 0 ELSE 1 END AS bit) AS has_schema,
    CAST(CASE WHEN OBJECT_ID(N'dialoq.installed') IS NULL THEN 0 ELSE 1 END AS bit) AS has_installed,
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
    END AS missing_to_install,
    CASE
        WHEN HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE TABLE') = 0
            OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE PROCEDURE') = 0
            THEN N'membership in db_owner, or the rights to create schemas, tables, procedures, types and roles'
    END AS missing_to_remove,
    CAST(NULL AS nvarchar(4000)) AS distrust,
    CAST(USER_NAME() AS nvarchar(256)) AS user_name,
    CAST(DB_NAME() AS nvarchar(256)) AS database_name
