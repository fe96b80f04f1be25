-- The claim index: which groups have something to receive. A row that a sender relies on is kept by a shared lock over
-- 'dialoq:', the database, ':ready:' and its order; who would remove it must get that lock alone.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: none of its own
-- Locks: rows of ready_group, without waiting

-- Announces a message: every sender sees to it that its message's group has a row at its level, as old or older.
IF OBJECT_ID(N'dialoq.add_ready') IS NOT NULL DROP PROCEDURE dialoq.add_ready
GO
CREATE PROCEDURE dialoq.add_ready
    @queue_id int, @priority int, @queuing_order bigint, @group uniqueidentifier, @said nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @oldest bigint, @resource nvarchar(255), @got int;
    IF @queue_id = 0 RETURN;
    SET @said = CONCAT(@said, N' q:', @queue_id);
    SELECT TOP (1) @oldest = r.oldest
    FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
    WHERE r.conversation_group_id = @group AND r.queue_id = @queue_id AND r.below_top = 10 - @priority
        AND r.oldest <= @queuing_order
    ORDER BY r.oldest;
    IF @oldest IS NOT NULL
    BEGIN
        SET @resource = CONCAT(N'dialoq:', DB_ID(), N':ready:', @oldest);
        IF APPLOCK_TEST(N'public', @resource, N'Shared', N'Transaction') = 1
        BEGIN
            EXEC @got = sp_getapplock
                @Resource = @resource, @LockMode = N'Shared', @LockOwner = N'Transaction', @LockTimeout = 0;
            -- Who held the lock may have removed the row meanwhile.
            IF @got >= 0 AND EXISTS (
                SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
                WHERE r.conversation_group_id = @group AND r.queue_id = @queue_id AND r.below_top = 10 - @priority
                    AND r.oldest = @oldest)
                RETURN;
        END
    END
    SET @oldest = NULL;
    SELECT @oldest = MIN(r.oldest)
    FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.conversation_group_id = @group;
    INSERT INTO dialoq.ready_group (queue_id, below_top, oldest, conversation_group_id)
    VALUES (@queue_id, 10 - @priority,
        CASE WHEN @oldest < @queuing_order THEN @oldest ELSE @queuing_order END, @group);
END
GO

-- Makes the rows of a group, whose lock the caller holds, say what is. The rows are locked before the messages are looked
-- at: a sender that relied on one of them has committed by then, and the next will not find them. Rows that a sender
-- keeps stay. is_ready says whether something can be received.
IF OBJECT_ID(N'dialoq.put_right') IS NOT NULL DROP PROCEDURE dialoq.put_right
GO
CREATE PROCEDURE dialoq.put_right
    @group uniqueidentifier, @is_ready bit = NULL OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @rows TABLE (
        row_number int IDENTITY(1, 1) PRIMARY KEY, queue_id int NOT NULL, below_top int NOT NULL, oldest bigint NOT NULL,
        is_ours bit NOT NULL
    );
    DECLARE @ranks TABLE (queue_id int NOT NULL, below_top int NOT NULL, oldest bigint NOT NULL);
    DECLARE @number int = 0, @oldest bigint, @resource nvarchar(255), @got int;
    INSERT INTO @rows (queue_id, below_top, oldest, is_ours)
    SELECT DISTINCT r.queue_id, r.below_top, r.oldest, 0
    FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
    WHERE r.conversation_group_id = @group;
    WHILE 1 = 1
    BEGIN
        SET @oldest = NULL;
        SELECT TOP (1) @number = r.row_number, @oldest = r.oldest
        FROM @rows AS r WHERE r.row_number > @number ORDER BY r.row_number;
        IF @oldest IS NULL BREAK;
        SET @resource = CONCAT(N'dialoq:', DB_ID(), N':ready:', @oldest);
        IF APPLOCK_TEST(N'public', @resource, N'Exclusive', N'Transaction') = 1
        BEGIN
            EXEC @got = sp_getapplock
                @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
            IF @got >= 0 UPDATE @rows SET is_ours = 1 WHERE row_number = @number;
        END
    END
    INSERT INTO @ranks (queue_id, below_top, oldest)
    SELECT g.queue_id, g.below_top, g.oldest FROM dialoq.group_ranks(@group) AS g;
    SET @is_ready = CASE WHEN EXISTS (SELECT 1 FROM @ranks) THEN 1 ELSE 0 END;
    DELETE FROM r
    FROM dialoq.ready_group AS r
    JOIN @rows AS x ON x.queue_id = r.queue_id AND x.below_top = r.below_top AND x.oldest = r.oldest
    WHERE r.conversation_group_id = @group AND x.is_ours = 1
        AND NOT EXISTS (
            SELECT 1 FROM @ranks AS k
            WHERE k.queue_id = x.queue_id AND k.below_top = x.below_top AND k.oldest = x.oldest);
    -- A row that is not ours to remove may vanish with its transaction only if it is not there yet, and that one we do not
    -- see.
    INSERT INTO dialoq.ready_group (queue_id, below_top, oldest, conversation_group_id)
    SELECT k.queue_id, k.below_top, k.oldest, @group
    FROM @ranks AS k
    WHERE NOT EXISTS (
        SELECT 1 FROM @rows AS x
        WHERE x.queue_id = k.queue_id AND x.below_top = k.below_top AND x.oldest = k.oldest);
END
GO

-- Every queue and level at which a group has messages that can be received, and the oldest of them all.
IF OBJECT_ID(N'dialoq.group_ranks') IS NOT NULL DROP FUNCTION dialoq.group_ranks
GO
CREATE FUNCTION dialoq.group_ranks(@group uniqueidentifier)
RETURNS TABLE AS RETURN (
    SELECT s.queue_id, 10 - e.priority AS below_top, MIN(MIN(f.queuing_order)) OVER () AS oldest
    FROM dialoq.conversation_endpoint AS e
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    CROSS JOIN (VALUES (0), (1), (2)) AS k (stored)
    CROSS APPLY (
        SELECT TOP (1) m.queuing_order
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = e.endpoint_id AND m.stored = k.stored ORDER BY m.queuing_order
    ) AS f
    WHERE e.conversation_group_id = @group AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
        AND s.queue_id <> 0
    GROUP BY s.queue_id, e.priority
)
GO
