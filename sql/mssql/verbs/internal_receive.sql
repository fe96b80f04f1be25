-- RECEIVE, but for what the verbs check first.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: groups, without waiting

-- The queue of that name, if it gives something out.
-- Errors: 59617, 60002
IF OBJECT_ID(N'dialoq.find_receivable') IS NOT NULL DROP PROCEDURE dialoq.find_receivable
GO
CREATE PROCEDURE dialoq.find_receivable
    @queue nvarchar(4000), @queue_id int OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @name nvarchar(256), @is_receive_enabled bit, @text nvarchar(2048);
    SET @queue_id = NULL;
    SELECT @queue_id = q.queue_id, @name = q.name, @is_receive_enabled = q.is_receive_enabled
    FROM dialoq.service_queue AS q WHERE q.folded_name = LOWER(@queue);
    IF @queue_id IS NULL
    BEGIN
        SET @text = CONCAT(N'queue ''', @queue, N''' was not found');
        THROW 60002, @text, 1;
    END
    IF @is_receive_enabled = 0
    BEGIN
        SET @text = CONCAT(N'queue ''', @name, N''' is disabled; ALTER QUEUE [', @name, N'] WITH STATUS = ON enables it');
        THROW 59617, @text, 1;
    END
END
GO

-- The rank of a group in a queue: NULLs if nothing can be received.
IF OBJECT_ID(N'dialoq.group_rank') IS NOT NULL DROP FUNCTION dialoq.group_rank
GO
CREATE FUNCTION dialoq.group_rank(@group uniqueidentifier, @queue_id int)
RETURNS TABLE AS RETURN (
    SELECT MIN(10 - e.priority) AS below_top, MIN(f.queuing_order) AS oldest
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    CROSS JOIN (VALUES (0), (1), (2)) AS k (stored)
    CROSS APPLY (
        SELECT TOP (1) m.queuing_order
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = e.endpoint_id AND m.stored = k.stored ORDER BY m.queuing_order
    ) AS f
    WHERE e.conversation_group_id = @group AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
        AND s.queue_id = @queue_id
)
GO

-- Chooses the best group of a queue that this transaction may take, and locks it; NULL if there is none. A row of the
-- claim index that says better than is true waits for its turn; one of a group that has nothing is removed if nobody
-- keeps it. Bounds are the lowest and the highest below_top; by_age: age alone counts.
IF OBJECT_ID(N'dialoq.choose') IS NOT NULL DROP PROCEDURE dialoq.choose
GO
CREATE PROCEDURE dialoq.choose
    @queue_id int, @from_top int, @to_top int, @by_age bit, @group uniqueidentifier OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @late TABLE (
        row_number int IDENTITY(1, 1) PRIMARY KEY, group_id uniqueidentifier NOT NULL, below_top int NOT NULL,
        oldest bigint NOT NULL
    );
    DECLARE @past_top int = @from_top, @past bigint = -1, @top int, @oldest bigint, @true_top int, @true_oldest bigint;
    DECLARE @number int, @is_locked bit, @candidate uniqueidentifier;
    SET @group = NULL;
    WHILE 1 = 1
    BEGIN
        SET @candidate = NULL;
        IF @by_age = 1
            SELECT TOP (1) @candidate = h.conversation_group_id, @top = h.below_top, @oldest = h.oldest,
                @true_top = k.below_top, @true_oldest = k.oldest
            FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS l (below_top)
            CROSS APPLY (
                SELECT TOP (1) r.conversation_group_id, r.below_top, r.oldest
                FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
                WHERE r.queue_id = @queue_id AND r.below_top = l.below_top AND r.oldest > @past
                    AND (APPLOCK_TEST(N'public', CONCAT(N'dialoq:group:', r.conversation_group_id), N'Exclusive',
                            N'Transaction') = 1
                        OR APPLOCK_MODE(N'public', CONCAT(N'dialoq:group:', r.conversation_group_id), N'Session')
                            = N'Exclusive')
                ORDER BY r.oldest
            ) AS h
            CROSS APPLY dialoq.group_rank(h.conversation_group_id, @queue_id) AS k
            ORDER BY h.oldest;
        ELSE
            SELECT TOP (1) @candidate = h.conversation_group_id, @top = h.below_top, @oldest = h.oldest,
                @true_top = k.below_top, @true_oldest = k.oldest
            FROM (
                SELECT TOP (1) r.conversation_group_id, r.below_top, r.oldest
                FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
                WHERE r.queue_id = @queue_id AND r.below_top >= @past_top AND r.below_top <= @to_top
                    AND (r.below_top > @past_top OR r.oldest > @past)
                    AND (APPLOCK_TEST(N'public', CONCAT(N'dialoq:group:', r.conversation_group_id), N'Exclusive',
                            N'Transaction') = 1
                        OR APPLOCK_MODE(N'public', CONCAT(N'dialoq:group:', r.conversation_group_id), N'Session')
                            = N'Exclusive')
                ORDER BY r.below_top, r.oldest
            ) AS h
            CROSS APPLY dialoq.group_rank(h.conversation_group_id, @queue_id) AS k;
        -- Whose turn comes before this row's.
        SET @number = NULL;
        SELECT TOP (1) @number = l.row_number, @group = l.group_id
        FROM @late AS l
        WHERE @candidate IS NULL
            OR @by_age = 1 AND l.oldest <= @oldest
            OR @by_age = 0 AND (l.below_top < @top OR l.below_top = @top AND l.oldest <= @oldest)
        ORDER BY CASE @by_age WHEN 1 THEN 0 ELSE l.below_top END, l.oldest;
        IF @number IS NOT NULL
        BEGIN
            EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
            IF @is_locked = 1 RETURN;
            DELETE FROM @late WHERE row_number = @number;
            SET @group = NULL;
            CONTINUE;
        END
        IF @candidate IS NULL RETURN;
        SET @past_top = @top;
        SET @past = @oldest;
        IF @true_top IS NULL
        BEGIN
            -- It has nothing. Whoever empties a group puts its rows right, so this is the leftover of a race.
            EXEC dialoq.remove_ghost @queue_id, @top, @oldest, @candidate;
            CONTINUE;
        END
        IF @by_age = 1 AND @true_oldest > @oldest
            OR @by_age = 0 AND (@true_top > @top OR @true_top = @top AND @true_oldest > @oldest)
        BEGIN
            IF @true_top BETWEEN @from_top AND @to_top AND NOT EXISTS (SELECT 1 FROM @late AS l WHERE l.group_id = @candidate)
                INSERT INTO @late (group_id, below_top, oldest) VALUES (@candidate, @true_top, @true_oldest);
            CONTINUE;
        END
        IF @by_age = 0 AND @true_top NOT BETWEEN @from_top AND @to_top CONTINUE;
        EXEC dialoq.lock_group @candidate, 0, @is_locked OUTPUT;
        IF @is_locked = 0 CONTINUE;
        SET @group = @candidate;
        RETURN;
    END
END
GO

-- Removes a row of the claim index whose group has nothing, if that is still so once no sender can rely on it any more.
IF OBJECT_ID(N'dialoq.remove_ghost') IS NOT NULL DROP PROCEDURE dialoq.remove_ghost
GO
CREATE PROCEDURE dialoq.remove_ghost
    @queue_id int, @below_top int, @oldest bigint, @group uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':ready:', @oldest), @got int;
    IF APPLOCK_TEST(N'public', @resource, N'Exclusive', N'Transaction') = 0 RETURN;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
    IF @got < 0 OR EXISTS (SELECT 1 FROM dialoq.group_ranks(@group) AS k WHERE k.queue_id = @queue_id) RETURN;
    DELETE FROM dialoq.ready_group WITH (ROWLOCK, READPAST)
    WHERE queue_id = @queue_id AND below_top = @below_top AND oldest = @oldest AND conversation_group_id = @group;
END
GO

-- Does RECEIVEs, one after the other, and gives what they took in one result; with_item: whether that says which one took
-- it. `@group` NULL: each from the best group of the queue that nobody else holds, within the bounds; else from that
-- group, or from the one conversation `@only` of it. Each takes a group's conversations by level downwards, then by
-- handle; of each the timers, the errors, then in sequence.
IF OBJECT_ID(N'dialoq.receive_items') IS NOT NULL DROP PROCEDURE dialoq.receive_items
GO
CREATE PROCEDURE dialoq.receive_items
    @queue_id int, @items dialoq.receive_batch_rows READONLY, @group uniqueidentifier, @only bigint, @from_top int,
    @to_top int, @by_age bit, @with_item bit
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    DECLARE @said nvarchar(max), @item int = -1, @next int, @top bigint, @chosen uniqueidentifier, @is_locked bit;
    DECLARE @retains bit, @id bigint, @now datetime2(6), @took int, @is_ready bit;
    DECLARE @news TABLE (endpoint_id bigint NOT NULL PRIMARY KEY);
    DECLARE @keys TABLE (
        place int IDENTITY(1, 1) PRIMARY KEY, endpoint_id bigint NOT NULL, stored smallint NOT NULL,
        queuing_order bigint NOT NULL
    );
    DECLARE @taken TABLE (
        item int NOT NULL, place int NOT NULL, endpoint_id bigint NOT NULL, stored smallint NOT NULL,
        queuing_order bigint NOT NULL, sequence bigint NOT NULL, message_type_id int NOT NULL,
        message_id uniqueidentifier NOT NULL, enqueued_at datetime2(6) NOT NULL, body varbinary(max) NULL,
        trace nvarchar(max) NULL, priority int NOT NULL, conversation_group_id uniqueidentifier NOT NULL,
        conversation_handle uniqueidentifier NOT NULL, service_id int NOT NULL, service_contract_id int NOT NULL,
        PRIMARY KEY (item, place)
    );
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        SELECT @retains = q.is_retention_enabled FROM dialoq.service_queue AS q WHERE q.queue_id = @queue_id;
        WHILE 1 = 1
        BEGIN
            SET @next = NULL;
            SELECT TOP (1) @next = i.item, @top = COALESCE(i.[top], 9223372036854775807)
            FROM @items AS i WHERE i.item > @item ORDER BY i.item;
            IF @next IS NULL BREAK;
            SET @item = @next;
            IF @top <= 0 CONTINUE;
            IF @group IS NULL
                EXEC dialoq.choose @queue_id, @from_top, @to_top, @by_age, @chosen OUTPUT;
            ELSE
            BEGIN
                -- A group with nothing to give is not locked.
                SET @chosen = NULL;
                IF EXISTS (
                    SELECT 1
                    FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
                    JOIN dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
                        ON e.endpoint_id = m.endpoint_id
                    WHERE e.conversation_group_id = @group AND (@only IS NULL OR e.endpoint_id = @only)
                        AND e.is_quarantined = 0)
                BEGIN
                    EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
                    IF @is_locked = 1 SET @chosen = @group;
                END
            END
            IF @chosen IS NULL BREAK;
            SET @now = dialoq.current_time_utc();
            DELETE FROM @news;
            INSERT INTO @news (endpoint_id)
            SELECT e.endpoint_id
            FROM dialoq.conversation_endpoint AS e
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE e.conversation_group_id = @chosen AND e.is_quarantined = 0 AND s.queue_id = @queue_id
                AND (@only IS NULL OR e.endpoint_id = @only)
                AND (e.due_at <= @now OR e.state = N'DO'
                    OR e.state IN (N'SO', N'CO', N'DI') AND EXISTS (
                        SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
                        WHERE m.endpoint_id = e.endpoint_id AND m.stored = 1)
                    OR e.state = N'CO' AND 2 = (
                        SELECT TOP (1) m.message_type_id
                        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
                        WHERE m.endpoint_id = e.endpoint_id AND m.stored = 0 ORDER BY m.queuing_order DESC));
            WHILE 1 = 1
            BEGIN
                SET @id = NULL;
                SELECT TOP (1) @id = n.endpoint_id FROM @news AS n ORDER BY n.endpoint_id;
                IF @id IS NULL BREAK;
                DELETE FROM @news WHERE endpoint_id = @id;
                EXEC dialoq.absorb @id, @said OUTPUT;
            END
            DELETE FROM @keys;
            INSERT INTO @keys (endpoint_id, stored, queuing_order)
            SELECT TOP (@top) e.endpoint_id, m.stored, m.queuing_order
            FROM dialoq.conversation_endpoint AS e
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            JOIN dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST) ON m.endpoint_id = e.endpoint_id
            WHERE e.conversation_group_id = @chosen AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
                AND s.queue_id = @queue_id AND (@only IS NULL OR e.endpoint_id = @only)
            ORDER BY e.priority DESC, CAST(e.conversation_handle AS nvarchar(36)) COLLATE Latin1_General_100_BIN2,
                m.stored DESC, m.queuing_order;
            SET @took = @@ROWCOUNT;
            IF @took > 0
            BEGIN
                UPDATE dialoq.conversation_endpoint SET rollbacks = 0
                WHERE conversation_group_id = @chosen AND rollbacks <> 0;
                IF @retains = 1
                    INSERT INTO dialoq.retained_message (
                        endpoint_id, queuing_order, status, stored, sequence, message_type_id, message_id, enqueued_at,
                        body, trace
                    )
                    SELECT m.endpoint_id, m.queuing_order, 0, m.stored, m.sequence, m.message_type_id, m.message_id,
                        m.enqueued_at, m.body, m.trace
                    FROM @keys AS k
                    JOIN dialoq.queue_message AS m
                        ON m.endpoint_id = k.endpoint_id AND m.stored = k.stored AND m.queuing_order = k.queuing_order;
                INSERT INTO @taken (
                    item, place, endpoint_id, stored, queuing_order, sequence, message_type_id, message_id, enqueued_at,
                    body, trace, priority, conversation_group_id, conversation_handle, service_id, service_contract_id
                )
                SELECT @item, k.place, m.endpoint_id, m.stored, m.queuing_order, m.sequence, m.message_type_id,
                    m.message_id, m.enqueued_at, m.body, m.trace, e.priority, e.conversation_group_id,
                    e.conversation_handle, e.service_id, e.service_contract_id
                FROM @keys AS k
                JOIN dialoq.queue_message AS m
                    ON m.endpoint_id = k.endpoint_id AND m.stored = k.stored AND m.queuing_order = k.queuing_order
                JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id;
                DELETE FROM m
                FROM dialoq.queue_message AS m
                JOIN @keys AS k
                    ON m.endpoint_id = k.endpoint_id AND m.stored = k.stored AND m.queuing_order = k.queuing_order;
                -- The lock of the group makes these ours alone; if they were not all there, they were not.
                IF @@ROWCOUNT <> @took
                    THROW 51205, N'messages were taken away from under the lock of their group; run the transaction again', 1;
            END
            EXEC dialoq.put_right @chosen, @is_ready OUTPUT;
            IF @is_ready = 1 SET @said = CONCAT(@said, N' q:', @queue_id);
            IF @group IS NOT NULL BREAK;
            -- Another had emptied it before the lock was ours: this RECEIVE looks again.
            IF @took = 0 SET @item = @item - 1;
        END
        -- If this transaction rolls back, so does this, and it is counted again.
        IF EXISTS (SELECT 1 FROM @taken) EXEC dialoq.forget_rollbacks @queue_id;
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SET @said = dialoq.words(@said);
    IF @with_item = 1
        SELECT t.item, 1 AS status, t.priority, t.queuing_order, t.conversation_group_id, t.conversation_handle,
            t.sequence AS message_sequence_number, s.name AS service_name, t.service_id,
            c.name AS service_contract_name, t.service_contract_id, y.name AS message_type_name, t.message_type_id,
            CASE y.validation WHEN N'V' THEN N'X' WHEN N'S' THEN N'J' ELSE y.validation END AS validation,
            t.body AS message_body, t.message_id, t.enqueued_at AS message_enqueue_time, t.trace, @said AS said
        FROM @taken AS t
        LEFT JOIN dialoq.service AS s ON s.service_id = t.service_id
        LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = t.service_contract_id
        LEFT JOIN dialoq.message_type AS y ON y.message_type_id = t.message_type_id
        ORDER BY t.item, t.place;
    ELSE
        SELECT 1 AS status, t.priority, t.queuing_order, t.conversation_group_id, t.conversation_handle,
            t.sequence AS message_sequence_number, s.name AS service_name, t.service_id,
            c.name AS service_contract_name, t.service_contract_id, y.name AS message_type_name, t.message_type_id,
            CASE y.validation WHEN N'V' THEN N'X' WHEN N'S' THEN N'J' ELSE y.validation END AS validation,
            t.body AS message_body, t.message_id, t.enqueued_at AS message_enqueue_time, t.trace, @said AS said
        FROM @taken AS t
        LEFT JOIN dialoq.service AS s ON s.service_id = t.service_id
        LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = t.service_contract_id
        LEFT JOIN dialoq.message_type AS y ON y.message_type_id = t.message_type_id
        ORDER BY t.item, t.place;
END
GO
