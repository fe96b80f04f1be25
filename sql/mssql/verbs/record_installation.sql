-- Notes which version stands, for every process that opens the broker.
-- Takes: schema_version, logic_hash, installed_by
-- Gives: nothing
-- Errors: none of its own
-- Locks: the row
IF OBJECT_ID(N'dialoq.record_installation') IS NOT NULL DROP PROCEDURE dialoq.record_installation
GO
CREATE PROCEDURE dialoq.record_installation
    @schema_version int, @logic_hash nvarchar(256), @installed_by nvarchar(256)
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE dialoq.installed SET
        schema_version = @schema_version, logic_hash = @logic_hash, installed_by = @installed_by,
        installed_at = SYSUTCDATETIME()
    WHERE singleton = 1;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.installed (singleton, schema_version, logic_hash, installed_by, installed_at)
        VALUES (1, @schema_version, @logic_hash, @installed_by, SYSUTCDATETIME());
END
GO
