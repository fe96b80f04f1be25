-- Ends a change of definitions: delivers waiting messages that can now be delivered, updates the reason of the others, and
-- raises the version.
-- Takes: nothing
-- Gives: catalog_version, notices
-- Errors: none of its own
-- Locks: the groups of messages that can be delivered, without waiting
-- Called by: dialoq_admin
CREATE PROCEDURE dialoq.define_end
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max) = N' c', @version bigint;
    EXEC dialoq.revisit_outboxes @notices OUTPUT;
    EXEC dialoq.end_holds NULL, 1, @notices OUTPUT;
    -- Clients compare only versions. So each definition gets a version of its own, also after the database was restored from a copy or
    -- installed again.
    SET @version = DATEDIFF_BIG(millisecond, '1970-01-01', SYSUTCDATETIME());
    UPDATE dialoq.broker
    SET catalog_version = CASE WHEN catalog_version >= @version THEN catalog_version + 1 ELSE @version END WHERE singleton = 1;
    SELECT @version = b.catalog_version FROM dialoq.broker AS b WHERE b.singleton = 1;
    SELECT @version AS catalog_version, dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO
