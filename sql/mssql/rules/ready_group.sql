-- The claim index ready_group: rows that say which groups have messages to receive. receive_order.sql ranks the groups. A sender that relies on a row holds a
-- shared lock over 'dialoq:', the database, ':ready:' and the row's order. A receiver removes the row only if it gets that lock
-- exclusively.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: none of its own
-- Locks: rows of ready_group, without waiting

-- Announces a message: makes sure that ready_group has a row for its group at its level that is as old or older.
CREATE PROCEDURE dialoq.add_ready
    @queue_id int, @priority int, @queuing_order bigint, @group uniqueidentifier, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @known bigint, @oldest bigint, @resource nvarchar(255), @is_locked bit;
    IF @queue_id = 0 RETURN;
    SET @notices = CONCAT(@notices, N' q:', @queue_id);
    SELECT TOP (1) @known = r.oldest
    FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
    WHERE r.conversation_group_id = @group AND r.queue_id = @queue_id AND r.rank_from_top = 10 - @priority
        AND r.oldest <= @queuing_order
    ORDER BY r.oldest DESC;
    IF @known IS NOT NULL
    BEGIN
        SET @resource = CONCAT(N'dialoq:', DB_ID(), N':ready:', @known);
        EXEC dialoq.try_lock @resource, N'Shared', @is_locked OUTPUT;
        -- The holder of the lock may have removed the row meanwhile.
        IF @is_locked = 1 AND EXISTS (
            SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
            WHERE r.conversation_group_id = @group AND r.queue_id = @queue_id AND r.rank_from_top = 10 - @priority
                AND r.oldest = @known)
            RETURN;
    END
    -- If a receiver has locked the known row, a row of the same age would have the same lock, and every SEND until the end of that
    -- transaction would add one. So the new row has its message's age, and the next SEND uses it. Otherwise it has the group's age.
    IF @known IS NULL OR @is_locked = 1
        SELECT @oldest = MIN(r.oldest)
        FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.conversation_group_id = @group;
    INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id)
    VALUES (@queue_id, 10 - @priority,
        CASE WHEN @oldest < @queuing_order THEN @oldest ELSE @queuing_order END, @group);
END
GO

-- Whether a group has messages to receive, uncommitted ones included, in that queue (NULL: in any).
CREATE PROCEDURE dialoq.has_any_message
    @group uniqueidentifier, @queue_id int, @is_there bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET @is_there = 0;
    IF EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED, INDEX (conversation_endpoint_group), FORCESEEK)
        JOIN dialoq.queue_message AS m WITH (READUNCOMMITTED) ON m.endpoint_id = e.endpoint_id
        WHERE e.conversation_group_id = @group AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
            AND m.delivery_class < 3 AND (@queue_id IS NULL OR EXISTS (
                SELECT 1 FROM dialoq.service AS s WHERE s.service_id = e.service_id AND s.queue_id = @queue_id)))
        SET @is_there = 1;
END
GO

-- Rebuilds the rows of a group whose lock the caller holds. Each row is locked before the group's messages are read: a sender
-- that relied on the row has committed by then, and the next sender adds a row, which may be equal, so only as many rows are
-- removed as were counted. Rows that a sender keeps stay. is_ready: whether the group has messages to receive.
CREATE PROCEDURE dialoq.rebuild_ready_rows
    @group uniqueidentifier, @is_ready bit = NULL OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @queue_id int = -1, @rank_from_top int = -1, @oldest bigint = -1, @rows int, @resource nvarchar(255);
    DECLARE @is_locked bit, @is_kept bit;
    DECLARE @true_oldest bigint, @is_at_level int, @first_place bigint, @last_place bigint, @place bigint;
    SET @is_ready = NULL;
    WHILE 1 = 1
    BEGIN
        SET @rows = NULL;
        SELECT TOP (1) @queue_id = r.queue_id, @rank_from_top = r.rank_from_top, @oldest = r.oldest, @rows = COUNT(*)
        FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
        WHERE r.conversation_group_id = @group
            AND (r.queue_id > @queue_id
                OR r.queue_id = @queue_id AND (r.rank_from_top > @rank_from_top
                    OR r.rank_from_top = @rank_from_top AND r.oldest > @oldest))
        GROUP BY r.queue_id, r.rank_from_top, r.oldest
        ORDER BY r.queue_id, r.rank_from_top, r.oldest;
        IF @rows IS NULL BREAK;
        SET @resource = CONCAT(N'dialoq:', DB_ID(), N':ready:', @oldest);
        EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
        IF @is_locked = 0 CONTINUE;
        SELECT @true_oldest = MIN(f.queuing_order),
            @is_at_level = MAX(CASE WHEN s.queue_id = @queue_id AND e.priority = 10 - @rank_from_top THEN 1 ELSE 0 END),
            @first_place = MIN(CAST(s.queue_id AS bigint) * 10 + 10 - e.priority),
            @last_place = MAX(CAST(s.queue_id AS bigint) * 10 + 10 - e.priority)
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        CROSS JOIN (VALUES (0), (1), (2)) AS k (delivery_class)
        CROSS APPLY (
            SELECT TOP (1) m.queuing_order
            FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
            WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = k.delivery_class ORDER BY m.queuing_order
        ) AS f
        WHERE e.conversation_group_id = @group AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
            AND s.queue_id <> 0;
        SET @is_ready = CASE WHEN @true_oldest IS NULL THEN 0 ELSE 1 END;
        -- SQL Server frees the locks of a transaction one after the other, so READPAST may still pass over the message of a sender
        -- that relied on the row. The row stays if there is any message, even an uncommitted one.
        IF @is_ready = 0
        BEGIN
            EXEC dialoq.has_any_message @group, NULL, @is_kept OUTPUT;
            IF @is_kept = 1 CONTINUE;
        END
        IF @true_oldest = @oldest AND @is_at_level = 1
        BEGIN
            SET @place = CAST(@queue_id AS bigint) * 10 + @rank_from_top;
            CONTINUE;
        END
        DELETE TOP (@rows) FROM dialoq.ready_group WITH (ROWLOCK, READPAST)
        WHERE queue_id = @queue_id AND rank_from_top = @rank_from_top AND oldest = @oldest AND conversation_group_id = @group;
    END
    IF @is_ready = 0 RETURN;
    -- Mostly the remaining messages are at one level, and then their rank is known already.
    IF @first_place = @last_place
    BEGIN
        IF @place IS NULL OR @place <> @first_place
            INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id)
            SELECT @first_place / 10, @first_place % 10, @true_oldest, @group
            WHERE NOT EXISTS (
                SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
                WHERE r.conversation_group_id = @group AND r.queue_id = @first_place / 10
                    AND r.rank_from_top = @first_place % 10 AND r.oldest = @true_oldest);
        RETURN;
    END
    -- A row that a sender keeps is committed. Only an uncommitted row can go away with its transaction, and that one is not
    -- visible here.
    INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id)
    SELECT k.queue_id, k.rank_from_top, k.oldest, @group
    FROM (
        SELECT s.queue_id, 10 - e.priority AS rank_from_top, MIN(MIN(f.queuing_order)) OVER () AS oldest
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        CROSS JOIN (VALUES (0), (1), (2)) AS v (delivery_class)
        CROSS APPLY (
            SELECT TOP (1) m.queuing_order
            FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
            WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = v.delivery_class ORDER BY m.queuing_order
        ) AS f
        WHERE e.conversation_group_id = @group AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
            AND s.queue_id <> 0
        GROUP BY s.queue_id, e.priority
    ) AS k
    WHERE NOT EXISTS (
        SELECT 1 FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
        WHERE r.conversation_group_id = @group AND r.queue_id = k.queue_id AND r.rank_from_top = k.rank_from_top
            AND r.oldest = k.oldest);
    IF @@ROWCOUNT > 0 SET @is_ready = 1;
    IF @is_ready IS NULL AND @oldest >= 0 AND EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        JOIN dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST) ON m.endpoint_id = e.endpoint_id
        WHERE e.conversation_group_id = @group AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
            AND s.queue_id <> 0)
        SET @is_ready = 1;
    SET @is_ready = COALESCE(@is_ready, 0);
END
GO

-- Removes a row of the claim index whose group is empty, if the group is still empty once no sender can rely on the row. The
-- group's lock is needed only for the second look: it is free again afterwards, unless this transaction held it before. From then
-- on the row's own locks protect the deletion until this transaction ends. A sender cannot get ':ready:', and READPAST passes over
-- the deleted row, so each session that has a message for the group adds a row of its own.
CREATE PROCEDURE dialoq.delete_stale_ready_row
    @queue_id int, @rank_from_top int, @oldest bigint, @group uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':ready:', @oldest);
    DECLARE @is_locked bit, @is_new bit, @is_there bit;
    -- The row of an uncommitted message stays. Until the end of this transaction no sender can rely on a row whose ':ready:' is
    -- locked here, so that is locked only for a row that is probably removed.
    EXEC dialoq.has_any_message @group, @queue_id, @is_there OUTPUT;
    IF @is_there = 1 RETURN;
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    IF @is_locked = 0 RETURN;
    -- The holder of the group may have received its messages and may still roll back, so the messages are read under the
    -- group's lock.
    EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT, @is_new OUTPUT;
    IF @is_locked = 0 RETURN;
    EXEC dialoq.has_any_message @group, @queue_id, @is_there OUTPUT;
    -- One row only: a sender that could not rely on it may have added an equal row since.
    IF @is_there = 0
        DELETE TOP (1) FROM dialoq.ready_group WITH (ROWLOCK, READPAST)
        WHERE queue_id = @queue_id AND rank_from_top = @rank_from_top AND oldest = @oldest AND conversation_group_id = @group;
    IF @is_new = 1 EXEC dialoq.unlock_group @group;
END
GO
