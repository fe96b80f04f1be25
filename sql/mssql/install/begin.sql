-- Makes the schema and the table that says which version stands.
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
