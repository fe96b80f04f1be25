-- Makes the schema and the table that says which version stands. A printed installation asks here whose the schema is:
-- since it was printed, another user may have made the schema, and its owner can replace every procedure in it.
-- Errors: 60011
IF EXISTS (
    SELECT 1 FROM sys.schemas AS s
    WHERE s.name = N'dialoq' AND s.principal_id NOT IN (DATABASE_PRINCIPAL_ID(), 1)
        AND USER_NAME(s.principal_id) NOT IN (N'dbo', N'db_owner'))
    THROW 60011,
        N'schema dialoq belongs neither to the installer nor to dbo; nothing was installed; drop it, or install as its owner', 1;
-- A plain user may not see the roles of others, so only dbo is an owner that every user of the broker can trust.
IF SCHEMA_ID(N'dialoq') IS NULL AND USER_NAME() <> N'dbo' AND IS_ROLEMEMBER(N'db_owner') = 1
    EXEC(N'CREATE SCHEMA dialoq AUTHORIZATION dbo')
IF SCHEMA_ID(N'dialoq') IS NULL EXEC(N'CREATE SCHEMA dialoq')
GO
CREATE TABLE dialoq.installed (
    singleton int NOT NULL PRIMARY KEY CHECK (singleton = 1),
    -- How many of the schema scripts have been run.
    schema_version int NOT NULL,
    -- Differs if a text of the verbs, views or roles does.
    logic_hash nvarchar(256) NOT NULL,
    installed_by nvarchar(256) NOT NULL,
    installed_at datetime2(6) NOT NULL
);
GO
