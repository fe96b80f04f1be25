-- The order of RECEIVE: which group a RECEIVE takes messages from. The order within a group is in receive.sql.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: none of its own
-- Locks: groups, without waiting

-- The rank of each group in each queue: its best level, as the distance from 10, and its oldest message. A group that has no
-- messages to receive has no row.
CREATE VIEW dialoq.group_rank AS
SELECT e.conversation_group_id, s.queue_id, MIN(10 - e.priority) AS rank_from_top, MIN(f.queuing_order) AS oldest
FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
JOIN dialoq.service AS s ON s.service_id = e.service_id
CROSS JOIN (VALUES (0), (1), (2)) AS k (delivery_class)
CROSS APPLY (
    SELECT TOP (1) m.queuing_order
    FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
    WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = k.delivery_class ORDER BY m.queuing_order
) AS f
WHERE e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
GROUP BY e.conversation_group_id, s.queue_id;
GO

-- Chooses the best group of a queue that this transaction may take, and locks it; NULL if there is none. If a row of
-- ready_group promises a better rank than the group has, choose adds a row with the true rank, which it reads later. A row of
-- a group without messages is removed unless a sender keeps it. Bounds are from_top to to_top, of rank_from_top; with by_age
-- the age alone counts. past_top and past are the level and the age of the last row that was read; begin with from_top and -1.
-- seen lists the groups already read at that level and age, because after a MOVE two groups can have rows of the same level
-- and age; begin with ''. A second call with these values reads no row again. is_new: whether this transaction did not hold the
-- group before.
CREATE PROCEDURE dialoq.choose
    @queue_id int, @from_top int, @to_top int, @by_age bit, @past_top int OUTPUT, @past bigint OUTPUT,
    @seen nvarchar(max) OUTPUT, @group uniqueidentifier OUTPUT, @is_new bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @candidate uniqueidentifier, @top int, @oldest bigint, @true_top int, @true_oldest bigint, @is_locked bit;
    DECLARE @resource nvarchar(255);
    SET @group = NULL;
    SET @is_new = 0;
    WHILE 1 = 1
    BEGIN
        SET @candidate = NULL;
        IF @by_age = 1
            SELECT TOP (1) @candidate = h.conversation_group_id, @top = h.rank_from_top, @oldest = h.oldest
            FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS l (rank_from_top)
            CROSS APPLY (
                SELECT TOP (1) r.conversation_group_id, r.rank_from_top, r.oldest
                FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
                WHERE r.queue_id = @queue_id AND r.rank_from_top = l.rank_from_top AND r.oldest >= @past
                    AND (r.oldest > @past OR CHARINDEX(CAST(r.conversation_group_id AS nvarchar(36)), @seen) = 0)
                ORDER BY r.oldest
            ) AS h
            ORDER BY h.oldest;
        ELSE
        BEGIN
            SELECT TOP (1) @candidate = r.conversation_group_id, @top = r.rank_from_top, @oldest = r.oldest
            FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
            WHERE r.queue_id = @queue_id AND r.rank_from_top = @past_top AND r.oldest >= @past
                AND (r.oldest > @past OR CHARINDEX(CAST(r.conversation_group_id AS nvarchar(36)), @seen) = 0)
            ORDER BY r.oldest;
            IF @candidate IS NULL
                SELECT TOP (1) @candidate = r.conversation_group_id, @top = r.rank_from_top, @oldest = r.oldest
                FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
                WHERE r.queue_id = @queue_id AND r.rank_from_top > @past_top AND r.rank_from_top <= @to_top
                ORDER BY r.rank_from_top, r.oldest;
        END
        IF @candidate IS NULL RETURN;
        IF @oldest > @past OR @by_age = 0 AND @top > @past_top SET @seen = N'';
        SET @seen = CONCAT(@seen, CAST(@candidate AS nvarchar(36)), N' ');
        IF @by_age = 0 SET @past_top = @top;
        SET @past = @oldest;
        SET @resource = CONCAT(N'dialoq:group:', @candidate);
        -- In this order: Babelfish takes a lock of the session that is tested so for one of the transaction. At its end it forgets the
        -- lock, which nothing but the end of the session frees then.
        IF APPLOCK_MODE(N'dialoq_user', @resource, N'Session') <> N'Exclusive'
            AND APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 0
            CONTINUE;
        SET @true_top = NULL;
        SELECT @true_top = k.rank_from_top, @true_oldest = k.oldest
        FROM dialoq.group_rank AS k WHERE k.conversation_group_id = @candidate AND k.queue_id = @queue_id;
        IF @true_top IS NULL
        BEGIN
            -- The group has no messages. A session that empties a group corrects its rows, so this row is the leftover of a
            -- race.
            EXEC dialoq.delete_stale_ready_row @queue_id, @top, @oldest, @candidate;
            CONTINUE;
        END
        IF @by_age = 0 AND @true_top NOT BETWEEN @from_top AND @to_top CONTINUE;
        IF @by_age = 1 AND @true_oldest > @oldest
            OR @by_age = 0 AND (@true_top > @top OR @true_top = @top AND @true_oldest > @oldest)
        BEGIN
            INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id)
            SELECT @queue_id, @true_top, @true_oldest, @candidate
            WHERE NOT EXISTS (
                SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
                WHERE r.conversation_group_id = @candidate AND r.queue_id = @queue_id AND r.rank_from_top = @true_top
                    AND r.oldest = @true_oldest);
            CONTINUE;
        END
        EXEC dialoq.lock_group @candidate, 0, @is_locked OUTPUT, @is_new OUTPUT;
        IF @is_locked = 0 CONTINUE;
        SET @group = @candidate;
        RETURN;
    END
END
GO
