-- Removes everything of Dialoq from a database and leaves the user's own tables. Refused if an object of the user's is
-- bound to one of ours. The roles stay, with their members.
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
DECLARE @types nvarchar(max), @tables nvarchar(max);
SELECT @types = STRING_AGG(CAST(CONCAT(N'DROP TYPE dialoq.', QUOTENAME(t.name), N';') AS nvarchar(max)), N' ')
FROM sys.table_types AS t WHERE t.schema_id = SCHEMA_ID(N'dialoq');
SELECT @tables = STRING_AGG(CAST(CONCAT(N'dialoq.', QUOTENAME(o.name)) AS nvarchar(max)), N', ')
FROM sys.objects AS o WHERE o.schema_id = SCHEMA_ID(N'dialoq') AND o.type = 'U';
IF @types IS NOT NULL EXEC(@types);
IF @tables IS NOT NULL EXEC(N'DROP TABLE ' + @tables);
DROP SCHEMA dialoq;
GO
