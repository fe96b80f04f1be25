-- Removes verbs and views, so that they can be made anew. Refused if an object of the user's is bound to one of them. Rights
-- that were granted or denied on single ones are kept in a temporary table; roles.sql grants or denies them again.
IF OBJECT_ID(N'tempdb..#dialoq_rights') IS NOT NULL DROP TABLE #dialoq_rights
GO
CREATE TABLE #dialoq_rights (object_name nvarchar(300) NOT NULL, column_name nvarchar(128) NULL, statement nvarchar(max) NOT NULL);
INSERT INTO #dialoq_rights (object_name, column_name, statement)
SELECT CONCAT(N'dialoq.', QUOTENAME(o.name)), COL_NAME(p.major_id, NULLIF(p.minor_id, 0)),
    -- This column has a collation of the server's own, and the names that of the database: without COLLATE SQL Server refuses
    -- to put them together.
    CONCAT(CASE p.state WHEN 'D' THEN N'DENY ' ELSE N'GRANT ' END, p.permission_name COLLATE DATABASE_DEFAULT, N' ON dialoq.', QUOTENAME(o.name),
        N' (' + QUOTENAME(COL_NAME(p.major_id, NULLIF(p.minor_id, 0))) + N')', N' TO ', QUOTENAME(g.name),
        CASE p.state WHEN 'W' THEN N' WITH GRANT OPTION' ELSE N'' END)
FROM sys.database_permissions AS p
JOIN sys.objects AS o ON o.object_id = p.major_id AND o.schema_id = SCHEMA_ID(N'dialoq') AND o.type IN ('V', 'P', 'FN', 'IF', 'TF')
JOIN sys.database_principals AS g ON g.principal_id = p.grantee_principal_id
WHERE p.class = 1 AND p.state IN ('D', 'G', 'W') AND g.name NOT IN (N'dialoq_user', N'dialoq_admin')
    -- SQL Server refuses a GRANT to oneself and to the database's owner, so every upgrade would fail.
    AND g.principal_id NOT IN (DATABASE_PRINCIPAL_ID(), 1);
GO
DECLARE @views nvarchar(max), @procedures nvarchar(max), @functions nvarchar(max);
SELECT @views = STRING_AGG(CAST(CONCAT(N'dialoq.', QUOTENAME(o.name)) AS nvarchar(max)), N', ')
FROM sys.objects AS o WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.type = 'V';
SELECT @procedures = STRING_AGG(CAST(CONCAT(N'dialoq.', QUOTENAME(o.name)) AS nvarchar(max)), N', ')
FROM sys.objects AS o WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.type = 'P';
SELECT @functions = STRING_AGG(CAST(CONCAT(N'dialoq.', QUOTENAME(o.name)) AS nvarchar(max)), N', ')
FROM sys.objects AS o WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.type IN ('FN', 'IF', 'TF');
IF @views IS NOT NULL EXEC(N'DROP VIEW ' + @views);
IF @procedures IS NOT NULL EXEC(N'DROP PROCEDURE ' + @procedures);
IF @functions IS NOT NULL EXEC(N'DROP FUNCTION ' + @functions);
GO
