-- What the server is and how it keeps commits.
-- Takes: nothing
-- Gives: version, settings
SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)) AS version,
    CAST(SERVERPROPERTY('Edition') AS nvarchar(128)) AS settings;
