-- Removes verbs and views, so that they can be made anew. Refused if an object of the user's is bound to one of them.
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
