-- MAX_QUEUE_READERS counts the readers of all processes: each reader holds one of so many slots. One session may hold
-- several of them.
-- Takes: queue_id, max_queue_readers; free_reader_slot: queue_id, slot
-- Gives: slot from 0, NULL if all are taken; free_reader_slot: nothing
-- Errors: 60005
-- Locks: the slot's lock, until it is freed or the session ends; never waits
-- Called by: dialoq_user (take_reader_slot, free_reader_slot)
CREATE PROCEDURE dialoq.take_reader_slot
    @queue_id int, @max_queue_readers int
AS
BEGIN
    -- <settings>
    IF @queue_id IS NULL OR @max_queue_readers IS NULL OR @max_queue_readers NOT BETWEEN 0 AND 32767
        THROW 60005, N'a reader slot needs a queue and a limit of 0 to 32767 readers', 1;
    DECLARE @slot int = 0, @taken int, @got int, @resource nvarchar(255);
    WHILE @taken IS NULL AND @slot < @max_queue_readers
    BEGIN
        SET @resource = CONCAT(N'dialoq:', DB_ID(), N':reader:', @queue_id, N':', @slot);
        -- A session could take its own slot twice.
        IF APPLOCK_MODE(N'dialoq_user', @resource, N'Session') = N'NoLock'
            AND APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Session') = 1
        BEGIN
            EXEC @got = sp_getapplock
                @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0,
                @DbPrincipal = N'dialoq_user';
            IF @got >= 0 SET @taken = @slot;
        END
        SET @slot = @slot + 1;
    END
    SELECT @taken AS slot;
END
GO
CREATE PROCEDURE dialoq.free_reader_slot
    @queue_id int, @slot int
AS
BEGIN
    -- <settings>
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':reader:', @queue_id, N':', @slot);
    IF APPLOCK_MODE(N'dialoq_user', @resource, N'Session') <> N'NoLock'
        EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Session', @DbPrincipal = N'dialoq_user';
END
GO
