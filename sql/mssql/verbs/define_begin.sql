-- Begins a change of definitions in the caller's transaction. Other changes wait until it ends.
-- Takes: catalog_version: of the definitions that the change was computed from
-- Gives: is_current: whether they are still current; if not, read them and compute again; now_at: the time from which schedules count
-- Errors: 51205, 60018
-- Locks: the lock of definitions, waiting; from now on lock_group waits 250 ms for a group and then fails with 51205;
--     the client rolls back and tries again, so other definitions do not wait for a transaction that holds a conversation
-- Called by: dialoq_admin
CREATE PROCEDURE dialoq.define_begin
    @catalog_version bigint
AS
BEGIN
    -- <definition>
    DECLARE @got int, @definer nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':definer');
    EXEC dialoq.lock_definitions;
    -- Only the holder of the lock of definitions requests this one, so it is free.
    EXEC @got = sp_getapplock
        @Resource = @definer, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 30000,
        @DbPrincipal = N'dialoq_user';
    IF @got = -1
        THROW 60018, N'the lock dialoq:<database>:definer was not had within 30 s; a session holds it that is no client', 1;
    IF @got < 0
        THROW 51205, N'the transaction met another one when it began to change definitions; roll back and run it again', 1;
    SELECT
        CAST(CASE b.catalog_version WHEN @catalog_version THEN 1 ELSE 0 END AS bit) AS is_current,
        COALESCE(b.manual_now, CAST(SYSUTCDATETIME() AS datetime2(6))) AS now_at
    FROM dialoq.broker AS b WHERE b.singleton = 1;
    -- </definition>
END
GO
