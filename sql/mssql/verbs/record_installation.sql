-- Notes which version stands, for every process that opens the broker.
-- Takes: schema_version, logic_hash, installed_by, and the version of the tables before the installation, 0 if there were none
-- Gives: nothing
-- Errors: 60011 if the tables had another version: the installation was printed for another database, or earlier
-- Locks: the row
CREATE PROCEDURE dialoq.record_installation
    @schema_version int, @logic_hash nvarchar(256), @installed_by nvarchar(256), @version_before int
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @before int = COALESCE((SELECT i.schema_version FROM dialoq.installed AS i), 0), @text nvarchar(2048);
    IF @before <> @version_before
    BEGIN
        SET @text = CONCAT(N'the tables of schema dialoq have version ', @before, N', and this installation is for version ',
            @version_before, N'; print it again for this database, or run dialoq install');
        THROW 60011, @text, 1;
    END
    UPDATE dialoq.installed SET
        schema_version = @schema_version, logic_hash = @logic_hash, installed_by = @installed_by,
        installed_at = SYSUTCDATETIME()
    WHERE singleton = 1;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.installed (singleton, schema_version, logic_hash, installed_by, installed_at)
        VALUES (1, @schema_version, @logic_hash, @installed_by, SYSUTCDATETIME());
END
GO
