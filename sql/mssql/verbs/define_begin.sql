-- Begins a change of definitions: whoever else changes them waits until this transaction, which is the caller's, ends.
-- Takes: catalog_version: of the definitions that the change was computed from
-- Gives: is_current: whether they still stand; if not, read them and compute again
-- Errors: 51205
-- Locks: the lock of definitions, waiting
IF OBJECT_ID(N'dialoq.define_begin') IS NOT NULL DROP PROCEDURE dialoq.define_begin
GO
CREATE PROCEDURE dialoq.define_begin
    @catalog_version bigint
AS
BEGIN
    SET NOCOUNT ON;
    EXEC dialoq.lock_definitions;
    SELECT CAST(CASE b.catalog_version WHEN @catalog_version THEN 1 ELSE 0 END AS bit) AS is_current
    FROM dialoq.broker AS b WHERE b.singleton = 1;
END
GO
