-- MAX_QUEUE_READERS counts the readers of all processes: each reader holds one of so many slots. One session may hold
-- several of them. A reader holds a lock of its slot's block too, if it did not begin before an upgrade to these; without it, it
-- counts below the limit only. A block above the limit that has a reader is tried slot by slot: a limit that was 100 takes 127 tries
-- at most.
-- Takes: queue_id, max_queue_readers; free_reader_slot: queue_id, slot
-- Gives: slot from 0, NULL if all are taken; free_reader_slot: nothing
-- Errors: 60005
-- Locks: the slot's lock, and that of its block shared with others, until it is freed or the session ends; never waits
-- Called by: dialoq_user (take_reader_slot, free_reader_slot)

-- The lock of a slot, or of a block of slots.
CREATE FUNCTION dialoq.reader_lock(@queue_id int, @what nvarchar(16), @number int) RETURNS nvarchar(255) AS
BEGIN
    RETURN CONCAT(N'dialoq:', DB_ID(), N':', @what, N':', @queue_id, N':', @number);
END
GO

-- The block of a slot: slot 0, slots 1 and 2, 3 to 6, and so on. A server shows the locks of others to few logins, so what is taken
-- is tried. Of 32767 slots that would be too many; of blocks there are 15.
CREATE FUNCTION dialoq.reader_block(@slot int) RETURNS int AS
BEGIN
    DECLARE @block int = 0, @last int = 0;
    WHILE @slot > @last SELECT @block = @block + 1, @last = @last * 2 + 2;
    RETURN @block;
END
GO

-- Whether a session, this one too, holds a lock of readers.
CREATE PROCEDURE dialoq.find_reader_lock
    @queue_id int, @what nvarchar(16), @number int, @is_taken bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = dialoq.reader_lock(@queue_id, @what, @number);
    SET @is_taken = CASE
        WHEN APPLOCK_MODE(N'dialoq_user', @resource, N'Session') = N'NoLock'
            AND APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Session') = 1 THEN 0
        ELSE 1 END;
END
GO

CREATE PROCEDURE dialoq.take_reader_slot
    @queue_id int, @max_queue_readers int
AS
BEGIN
    -- <settings>
    IF @queue_id IS NULL OR @max_queue_readers IS NULL OR @max_queue_readers NOT BETWEEN 0 AND 32767
        THROW 60005, N'a reader slot needs a queue and a limit of 0 to 32767 readers', 1;
    DECLARE @slot int, @taken int, @got int, @resource nvarchar(255), @shared nvarchar(255), @is_taken bit;
    DECLARE @block int = 0, @last int = 0, @above int = 0, @free int = 0;
    -- Those above a limit that was lowered count too.
    WHILE @last < 32767
    BEGIN
        SET @is_taken = 0;
        IF @last >= @max_queue_readers EXEC dialoq.find_reader_lock @queue_id, N'readers', @block, @is_taken OUTPUT;
        SET @slot = CASE WHEN @is_taken = 0 THEN @last + 1 WHEN @last / 2 < @max_queue_readers THEN @max_queue_readers ELSE @last / 2 END;
        WHILE @slot <= @last AND @above < @max_queue_readers
        BEGIN
            EXEC dialoq.find_reader_lock @queue_id, N'reader', @slot, @is_taken OUTPUT;
            SET @above = @above + @is_taken;
            SET @slot = @slot + 1;
        END
        SELECT @block = @block + 1, @last = @last * 2 + 2;
    END
    -- Each of them needs a slot below the limit that stays free.
    SET @slot = 0;
    WHILE @taken IS NULL AND @slot < @max_queue_readers
    BEGIN
        EXEC dialoq.find_reader_lock @queue_id, N'reader', @slot, @is_taken OUTPUT;
        IF @is_taken = 0 SET @free = @free + 1;
        IF @is_taken = 0 AND @free > @above
        BEGIN
            SET @shared = dialoq.reader_lock(@queue_id, N'readers', dialoq.reader_block(@slot));
            EXEC @got = sp_getapplock
                @Resource = @shared, @LockMode = N'Shared', @LockOwner = N'Session', @LockTimeout = 0,
                @DbPrincipal = N'dialoq_user';
            SET @resource = dialoq.reader_lock(@queue_id, N'reader', @slot);
            IF @got >= 0
            BEGIN
                EXEC @got = sp_getapplock
                    @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0,
                    @DbPrincipal = N'dialoq_user';
                IF @got >= 0 SET @taken = @slot;
                ELSE EXEC sp_releaseapplock @Resource = @shared, @LockOwner = N'Session', @DbPrincipal = N'dialoq_user';
            END
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
    DECLARE @resource nvarchar(255) = dialoq.reader_lock(@queue_id, N'reader', @slot);
    DECLARE @shared nvarchar(255) = dialoq.reader_lock(@queue_id, N'readers', dialoq.reader_block(@slot));
    IF APPLOCK_MODE(N'dialoq_user', @resource, N'Session') = N'NoLock' RETURN;
    EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Session', @DbPrincipal = N'dialoq_user';
    IF APPLOCK_MODE(N'dialoq_user', @shared, N'Session') <> N'NoLock'
        EXEC sp_releaseapplock @Resource = @shared, @LockOwner = N'Session', @DbPrincipal = N'dialoq_user';
END
GO
