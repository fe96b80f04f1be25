-- The roles and their rights: dialoq_user may execute the verbs and read the views, dialoq_admin may also change
-- definitions; no role may touch a table. The statements inside a procedure need no right of the caller's, because
-- procedures and tables have one owner.
IF DATABASE_PRINCIPAL_ID(N'dialoq_user') IS NULL EXEC(N'CREATE ROLE dialoq_user')
GO
IF DATABASE_PRINCIPAL_ID(N'dialoq_admin') IS NULL EXEC(N'CREATE ROLE dialoq_admin')
GO
-- The locks of the broker belong to dialoq_user, so the caller of a verb must be a member.
IF NOT EXISTS (
    SELECT 1 FROM sys.database_role_members AS m
    WHERE m.role_principal_id = DATABASE_PRINCIPAL_ID(N'dialoq_user')
        AND m.member_principal_id = DATABASE_PRINCIPAL_ID(N'dialoq_admin'))
    EXEC(N'ALTER ROLE dialoq_user ADD MEMBER dialoq_admin');
GO
GRANT SELECT ON dialoq.tick_failure TO dialoq_admin;
GRANT SELECT ON dialoq.installed TO dialoq_user, dialoq_admin;
-- <each view> GRANT SELECT ON dialoq.NAME TO dialoq_user, dialoq_admin;
GO
-- `Called by` marks procedures. This is the only function that users call: it makes the body of a job from a text.
GRANT EXECUTE ON dialoq.utf8 TO dialoq_user, dialoq_admin;
GO
-- <each routine of dialoq_user> GRANT EXECUTE ON dialoq.NAME TO dialoq_user, dialoq_admin;
GO
-- <each routine of dialoq_admin> GRANT EXECUTE ON dialoq.NAME TO dialoq_admin;
GO
-- Babelfish has no rights on types: every user may use them.
IF @@VERSION NOT LIKE N'%Babelfish%'
BEGIN
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.send_many_rows TO dialoq_user, dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.send_batch_rows TO dialoq_user, dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.receive_batch_rows TO dialoq_user, dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.job_id_rows TO dialoq_user, dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.job_rows TO dialoq_user, dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.usage_rows TO dialoq_admin');
    EXEC(N'GRANT EXECUTE ON TYPE::dialoq.contract_id_rows TO dialoq_admin');
END
GO
-- What install/clear.sql kept: rights of single users and other roles, on what is still there.
IF OBJECT_ID(N'tempdb..#dialoq_rights') IS NOT NULL
BEGIN
    DECLARE @rights nvarchar(max);
    SELECT @rights = STRING_AGG(CAST(r.statement AS nvarchar(max)), N'; ')
    FROM #dialoq_rights AS r
    WHERE OBJECT_ID(r.object_name) IS NOT NULL
        AND (r.column_name IS NULL OR COL_LENGTH(r.object_name, r.column_name) IS NOT NULL);
    IF @rights IS NOT NULL EXEC(@rights);
    DROP TABLE #dialoq_rights;
END
GO
