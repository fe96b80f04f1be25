-- Begins a change of definitions: whoever else changes them waits until this transaction, which is the caller's, ends.
-- Takes: catalog_version: of the definitions that the change was computed from
-- Gives: is_current: whether they still stand; if not, read them and compute again
-- Errors: 51205
-- Locks: the lock of definitions, waiting; from now on lock_group waits for a group no longer than a moment, and then fails
--     with 51205: the client lets go and tries again, so that other definitions need not wait for whoever holds a
--     conversation
IF OBJECT_ID(N'dialoq.define_begin') IS NOT NULL DROP PROCEDURE dialoq.define_begin
GO
CREATE PROCEDURE dialoq.define_begin
    @catalog_version bigint
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @got int, @definer nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':definer');
    EXEC dialoq.lock_definitions;
    -- Only who has the lock of definitions asks for this one, so nobody waits for it.
    EXEC @got = sp_getapplock
        @Resource = @definer, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;
    IF @got < 0
        THROW 51205, N'the transaction was chosen as a deadlock victim: it began to change definitions; run it again', 1;
    SELECT CAST(CASE b.catalog_version WHEN @catalog_version THEN 1 ELSE 0 END AS bit) AS is_current
    FROM dialoq.broker AS b WHERE b.singleton = 1;
END
GO
