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
    FROM dialoq.service_queue AS q WHERE q.folded_name = dialoq.fold_name(@queue) AND DATALENGTH(q.folded_name) = DATALENGTH(@queue);
    IF @queue_id IS NULL
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'queue ''', @queue, N''' was not found'));
        THROW 60002, @text, 1;
    END
    IF @is_receive_enabled = 0
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'queue ''', @name, N''' is disabled; ALTER QUEUE [', @name, N'] WITH STATUS = ON enables it'));
        THROW 59617, @text, 1;
    END
END
GO

-- The rank of a group in a queue: NULLs if nothing can be received.
IF OBJECT_ID(N'dialoq.group_rank') IS NOT NULL DROP FUNCTION dialoq.group_rank
GO
CREATE FUNCTION dialoq.group_rank(@group uniqueidentifier, @queue_id int)
RETURNS TABLE AS RETURN (
    SELECT MIN(10 - e.priority) AS rank_from_top, MIN(f.queuing_order) AS oldest
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    CROSS JOIN (VALUES (0), (1), (2)) AS k (delivery_class)
    CROSS APPLY (
        SELECT TOP (1) m.queuing_order
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = k.delivery_class ORDER BY m.queuing_order
    ) AS f
    WHERE e.conversation_group_id = @group AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
        AND s.queue_id = @queue_id
)
GO

-- Chooses the best group of a queue that this transaction may take, and locks it; NULL if there is none. A row of the
-- claim index that says better than is true gets one beside it that says what is, which has its turn later; one of a group
-- that has nothing is removed if nobody keeps it. Bounds are from from_top to to_top, of rank_from_top; by_age: age alone
-- counts. past_top and past are the level and the age of the last row that was read; begin with from_top and -1. seen lists
-- the groups already read at that level and age; begin with ''. After a MOVE two groups can have rows of the same level and age.
-- A second call with these values reads no row again.
IF OBJECT_ID(N'dialoq.choose') IS NOT NULL DROP PROCEDURE dialoq.choose
GO
CREATE PROCEDURE dialoq.choose
    @queue_id int, @from_top int, @to_top int, @by_age bit, @past_top int OUTPUT, @past bigint OUTPUT,
    @seen nvarchar(max) OUTPUT, @group uniqueidentifier OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @candidate uniqueidentifier, @top int, @oldest bigint, @true_top int, @true_oldest bigint, @is_locked bit;
    DECLARE @resource nvarchar(255);
    SET @group = NULL;
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
        IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 0
            AND APPLOCK_MODE(N'dialoq_user', @resource, N'Session') <> N'Exclusive'
            CONTINUE;
        SELECT @true_top = MIN(10 - e.priority), @true_oldest = MIN(f.queuing_order)
        FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        CROSS JOIN (VALUES (0), (1), (2)) AS k (delivery_class)
        CROSS APPLY (
            SELECT TOP (1) m.queuing_order
            FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
            WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = k.delivery_class ORDER BY m.queuing_order
        ) AS f
        WHERE e.conversation_group_id = @candidate AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
            AND s.queue_id = @queue_id;
        IF @true_top IS NULL
        BEGIN
            -- It has nothing. Whoever empties a group puts its rows right, so this is the leftover of a race.
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
        EXEC dialoq.lock_group @candidate, 0, @is_locked OUTPUT;
        IF @is_locked = 0 CONTINUE;
        SET @group = @candidate;
        RETURN;
    END
END
GO

-- Removes a row of the claim index whose group has nothing, if that is still so once no sender can rely on it any more.
IF OBJECT_ID(N'dialoq.delete_stale_ready_row') IS NOT NULL DROP PROCEDURE dialoq.delete_stale_ready_row
GO
CREATE PROCEDURE dialoq.delete_stale_ready_row
    @queue_id int, @below_top int, @oldest bigint, @group uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':ready:', @oldest), @got int;
    DECLARE @is_locked bit;
    IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 0 RETURN;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0,
        @DbPrincipal = N'dialoq_user';
    IF @got < 0 RETURN;
    -- Who holds the group may have just taken what it has, and give it back: so it is looked at under its lock.
    EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
    IF @is_locked = 0 RETURN;
    IF NOT EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        JOIN dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST) ON m.endpoint_id = e.endpoint_id
        WHERE e.conversation_group_id = @group AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
            AND s.queue_id = @queue_id)
        -- One: a sender that could not rely on it may have added one like it since.
        DELETE TOP (1) FROM dialoq.ready_group WITH (ROWLOCK, READPAST)
        WHERE queue_id = @queue_id AND rank_from_top = @below_top AND oldest = @oldest AND conversation_group_id = @group;
END
GO

-- Locks the group that a RECEIVE is from, and takes note of what its conversations were told: `@group`, if it has anything
-- to give, or if that is NULL the best of the queue. chosen is NULL if there is none. The rest is choose's.
IF OBJECT_ID(N'dialoq.claim') IS NOT NULL DROP PROCEDURE dialoq.claim
GO
CREATE PROCEDURE dialoq.claim
    @queue_id int, @group uniqueidentifier, @only bigint, @from_top int, @to_top int, @by_age bit, @past_top int OUTPUT,
    @past bigint OUTPUT, @seen nvarchar(max) OUTPUT, @chosen uniqueidentifier OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_locked bit, @now datetime2(6), @id bigint = 0;
    SET @chosen = NULL;
    IF @group IS NULL
        EXEC dialoq.choose @queue_id, @from_top, @to_top, @by_age, @past_top OUTPUT, @past OUTPUT, @seen OUTPUT,
            @chosen OUTPUT;
    ELSE IF EXISTS (
        SELECT 1
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        JOIN dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) ON e.endpoint_id = m.endpoint_id
        WHERE e.conversation_group_id = @group AND (@only IS NULL OR e.endpoint_id = @only) AND e.is_quarantined = 0)
    BEGIN
        EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
        IF @is_locked = 1 SET @chosen = @group;
    END
    IF @chosen IS NULL RETURN;
    SELECT @now = COALESCE(b.manual_now, SYSUTCDATETIME()) FROM dialoq.broker AS b WHERE b.singleton = 1;
    WHILE 1 = 1
    BEGIN
        SELECT @id = MIN(e.endpoint_id)
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.conversation_group_id = @chosen AND e.endpoint_id > @id AND e.is_quarantined = 0
            AND s.queue_id = @queue_id AND (@only IS NULL OR e.endpoint_id = @only)
            AND (e.due_at <= @now OR e.state = N'DO'
                OR e.state IN (N'SO', N'CO', N'DI') AND EXISTS (
                    SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
                    WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = 1)
                OR e.state = N'CO' AND 2 = (
                    SELECT TOP (1) m.message_type_id
                    FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
                    WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = 0 ORDER BY m.queuing_order DESC));
        IF @id IS NULL RETURN;
        EXEC dialoq.apply_pending @id, @notices OUTPUT;
    END
END
GO

-- What follows taking messages from a group, or none: the rollbacks of its conversations are over, its rows are right.
IF OBJECT_ID(N'dialoq.leave') IS NOT NULL DROP PROCEDURE dialoq.leave
GO
CREATE PROCEDURE dialoq.leave
    @queue_id int, @group uniqueidentifier, @took int, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_ready bit;
    IF @took > 0 EXEC dialoq.forget_group_rollbacks @group;
    EXEC dialoq.rebuild_ready_rows @group, @is_ready OUTPUT;
    IF @is_ready = 1 SET @notices = CONCAT(@notices, N' q:', @queue_id);
END
GO

-- Takes the first message of a group whose lock the caller holds, or of its conversation `@only`: of the first
-- conversation by level downwards, then by handle; of that the timers, the errors, then in sequence. took: 1, or 0 if there
-- is none.
IF OBJECT_ID(N'dialoq.take_first') IS NOT NULL DROP PROCEDURE dialoq.take_first
GO
CREATE PROCEDURE dialoq.take_first
    @queue_id int, @group uniqueidentifier, @only bigint, @took int OUTPUT, @order bigint OUTPUT, @sequence bigint OUTPUT,
    @type_id int OUTPUT, @message_id uniqueidentifier OUTPUT, @enqueued_at datetime2(6) OUTPUT,
    @body varbinary(max) OUTPUT, @trace nvarchar(max) OUTPUT, @priority int OUTPUT, @handle uniqueidentifier OUTPUT,
    @service_id int OUTPUT, @contract_id int OUTPUT, @service nvarchar(256) OUTPUT, @contract nvarchar(256) OUTPUT,
    @type nvarchar(256) OUTPUT, @validation nvarchar(1) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @endpoint_id bigint, @delivery_class smallint;
    SELECT TOP (1) @endpoint_id = e.endpoint_id, @delivery_class = m.delivery_class, @order = m.queuing_order, @sequence = m.sequence,
        @type_id = m.message_type_id, @message_id = m.message_id, @enqueued_at = m.enqueued_at, @body = m.body,
        @trace = m.trace, @priority = e.priority, @handle = e.conversation_handle, @service_id = e.service_id,
        @contract_id = e.service_contract_id
    FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    CROSS APPLY (
        SELECT TOP (1) n.delivery_class, n.queuing_order, n.sequence, n.message_type_id, n.message_id, n.enqueued_at, n.body,
            n.trace
        FROM dialoq.queue_message AS n WITH (READCOMMITTEDLOCK, READPAST)
        WHERE n.endpoint_id = e.endpoint_id ORDER BY n.delivery_class DESC, n.queuing_order
    ) AS m
    WHERE e.conversation_group_id = @group AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
        AND s.queue_id = @queue_id AND (@only IS NULL OR e.endpoint_id = @only)
    ORDER BY e.priority DESC, CAST(e.conversation_handle AS nvarchar(36)) COLLATE Latin1_General_100_BIN2;
    SET @took = @@ROWCOUNT;
    IF @took = 0 RETURN;
    INSERT INTO dialoq.retained_message (
        endpoint_id, queuing_order, status, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace
    )
    SELECT @endpoint_id, @order, 0, @delivery_class, @sequence, @type_id, @message_id, @enqueued_at, @body, @trace
    FROM dialoq.service_queue AS q WHERE q.queue_id = @queue_id AND q.is_retention_enabled = 1;
    DELETE FROM dialoq.queue_message
    WHERE endpoint_id = @endpoint_id AND delivery_class = @delivery_class AND queuing_order = @order;
    -- The lock of the group makes it ours alone; if it is not there, it was not.
    IF @@ROWCOUNT <> 1
        THROW 51205, N'a message was taken away from under the lock of its group; run the transaction again', 1;
    -- Now, and not after COMMIT: what fails then would be lost with its message.
    SELECT @service = s.name, @contract = c.name, @type = y.name,
        @validation = CASE y.validation WHEN N'V' THEN N'X' WHEN N'S' THEN N'J' ELSE y.validation END
    FROM dialoq.service AS s
    LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = @contract_id
    LEFT JOIN dialoq.message_type AS y ON y.message_type_id = @type_id
    WHERE s.service_id = @service_id;
END
GO

-- RECEIVEs one message, and gives it. `@group` NULL: of the best group of the queue that nobody else holds, within the
-- bounds; else of that group, or of the one conversation `@only` of it.
IF OBJECT_ID(N'dialoq.receive_one') IS NOT NULL DROP PROCEDURE dialoq.receive_one
GO
CREATE PROCEDURE dialoq.receive_one
    @queue_id int, @group uniqueidentifier, @only bigint, @from_top int, @to_top int, @by_age bit
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    DECLARE @notices nvarchar(max), @chosen uniqueidentifier, @past_top int = @from_top, @past bigint = -1, @took int = 0;
    DECLARE @seen nvarchar(max) = N'';
    DECLARE @order bigint, @sequence bigint, @type_id int, @message_id uniqueidentifier, @enqueued_at datetime2(6);
    DECLARE @body varbinary(max), @trace nvarchar(max), @priority int, @handle uniqueidentifier, @service_id int;
    DECLARE @contract_id int, @service nvarchar(256), @contract nvarchar(256), @type nvarchar(256), @validation nvarchar(1);
    BEGIN TRY
        IF @is_own = 1 BEGIN TRANSACTION;
        WHILE @took = 0
        BEGIN
            EXEC dialoq.claim @queue_id, @group, @only, @from_top, @to_top, @by_age, @past_top OUTPUT, @past OUTPUT,
                @seen OUTPUT, @chosen OUTPUT, @notices OUTPUT;
            IF @chosen IS NULL BREAK;
            EXEC dialoq.take_first @queue_id, @chosen, @only, @took OUTPUT, @order OUTPUT, @sequence OUTPUT, @type_id OUTPUT,
                @message_id OUTPUT, @enqueued_at OUTPUT, @body OUTPUT, @trace OUTPUT, @priority OUTPUT, @handle OUTPUT,
                @service_id OUTPUT, @contract_id OUTPUT, @service OUTPUT, @contract OUTPUT, @type OUTPUT, @validation OUTPUT;
            EXEC dialoq.leave @queue_id, @chosen, @took, @notices OUTPUT;
            -- Another had emptied it before the lock was ours: this RECEIVE looks again.
            IF @group IS NOT NULL BREAK;
        END
        -- If this transaction rolls back, so does this, and it is counted again.
        IF @took = 1 EXEC dialoq.forget_rollbacks @queue_id;
        -- Before COMMIT: if this failed after it, the message would be lost.
        SET @notices = dialoq.distinct_notices(@notices);
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    SELECT 1 AS status, @priority AS priority, @order AS queuing_order, @chosen AS conversation_group_id,
        @handle AS conversation_handle, @sequence AS message_sequence_number, @service AS service_name,
        @service_id AS service_id, @contract AS service_contract_name, @contract_id AS service_contract_id,
        @type AS message_type_name, @type_id AS message_type_id, @validation AS validation,
        @body AS message_body, @message_id AS message_id, @enqueued_at AS message_enqueue_time, @trace AS trace,
        @notices AS notices
    FROM (VALUES (@took)) AS t (took)
    WHERE t.took = 1;
END
GO

-- Does RECEIVEs, one after the other, and gives what they took in one result; with_item: whether that says which one took
-- it. The rest is as receive_one's, and each takes from one group.
IF OBJECT_ID(N'dialoq.receive_items') IS NOT NULL DROP PROCEDURE dialoq.receive_items
GO
CREATE PROCEDURE dialoq.receive_items
    @queue_id int, @items dialoq.receive_batch_rows READONLY, @group uniqueidentifier, @only bigint, @from_top int,
    @to_top int, @by_age bit, @start_top int, @start bigint, @with_item bit
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
    DECLARE @notices nvarchar(max), @item int = -1, @next int, @top bigint, @chosen uniqueidentifier, @took int, @any bit = 0;
    DECLARE @retains bit, @past_top int = COALESCE(@start_top, @from_top), @past bigint = COALESCE(@start, -1);
    DECLARE @seen nvarchar(max) = N'';
    DECLARE @order bigint, @sequence bigint, @type_id int, @message_id uniqueidentifier, @enqueued_at datetime2(6);
    DECLARE @body varbinary(max), @trace nvarchar(max), @priority int, @handle uniqueidentifier, @service_id int;
    DECLARE @contract_id int, @service nvarchar(256), @contract nvarchar(256), @type nvarchar(256), @validation nvarchar(1);
    DECLARE @taken TABLE (
        item int NOT NULL, place bigint NOT NULL, endpoint_id bigint NULL, delivery_class smallint NULL,
        queuing_order bigint NOT NULL, sequence bigint NOT NULL, message_type_id int NOT NULL,
        message_id uniqueidentifier NOT NULL, enqueued_at datetime2(6) NOT NULL, body varbinary(max) NULL,
        trace nvarchar(max) NULL, priority int NOT NULL, conversation_group_id uniqueidentifier NOT NULL,
        conversation_handle uniqueidentifier NOT NULL, service_id int NOT NULL, service_contract_id int NOT NULL,
        service_name nvarchar(256) NULL, service_contract_name nvarchar(256) NULL, message_type_name nvarchar(256) NULL,
        validation nvarchar(1) NULL, PRIMARY KEY (item, place)
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
            EXEC dialoq.claim @queue_id, @group, @only, @from_top, @to_top, @by_age, @past_top OUTPUT, @past OUTPUT,
                @seen OUTPUT, @chosen OUTPUT, @notices OUTPUT;
            IF @chosen IS NULL AND @start_top IS NULL BREAK;
            IF @chosen IS NULL
            BEGIN
                -- Where it began nothing is left: once more, from the first row of all.
                SET @start_top = NULL;
                SET @past_top = @from_top;
                SET @past = -1;
                SET @seen = N'';
                SET @item = @item - 1;
                CONTINUE;
            END
            -- Plans over table variables are not kept everywhere, and this is what nearly all do.
            IF @top = 1
            BEGIN
                EXEC dialoq.take_first @queue_id, @chosen, @only, @took OUTPUT, @order OUTPUT, @sequence OUTPUT, @type_id OUTPUT,
                    @message_id OUTPUT, @enqueued_at OUTPUT, @body OUTPUT, @trace OUTPUT, @priority OUTPUT, @handle OUTPUT,
                    @service_id OUTPUT, @contract_id OUTPUT, @service OUTPUT, @contract OUTPUT, @type OUTPUT,
                    @validation OUTPUT;
                IF @took = 1
                    INSERT INTO @taken (
                        item, place, queuing_order, sequence, message_type_id, message_id, enqueued_at, body, trace,
                        priority, conversation_group_id, conversation_handle, service_id, service_contract_id,
                        service_name, service_contract_name, message_type_name, validation
                    ) VALUES (
                        @item, 1, @order, @sequence, @type_id, @message_id, @enqueued_at, @body, @trace, @priority,
                        @chosen, @handle, @service_id, @contract_id, @service, @contract, @type, @validation
                    );
            END
            ELSE
            BEGIN
                INSERT INTO @taken (
                    item, place, endpoint_id, delivery_class, queuing_order, sequence, message_type_id, message_id, enqueued_at,
                    body, trace, priority, conversation_group_id, conversation_handle, service_id, service_contract_id,
                    service_name, service_contract_name, message_type_name, validation
                )
                SELECT TOP (@top) @item,
                    ROW_NUMBER() OVER (
                        ORDER BY e.priority DESC,
                            CAST(e.conversation_handle AS nvarchar(36)) COLLATE Latin1_General_100_BIN2,
                            n.delivery_class DESC, n.queuing_order) AS place,
                    e.endpoint_id, n.delivery_class, n.queuing_order, n.sequence, n.message_type_id, n.message_id, n.enqueued_at,
                    n.body, n.trace, e.priority, e.conversation_group_id, e.conversation_handle, e.service_id,
                    e.service_contract_id, s.name, c.name, y.name,
                    CASE y.validation WHEN N'V' THEN N'X' WHEN N'S' THEN N'J' ELSE y.validation END
                FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
                JOIN dialoq.service AS s ON s.service_id = e.service_id
                LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
                CROSS APPLY (
                    SELECT TOP (@top) m.delivery_class, m.queuing_order, m.sequence, m.message_type_id, m.message_id,
                        m.enqueued_at, m.body, m.trace
                    FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
                    WHERE m.endpoint_id = e.endpoint_id ORDER BY m.delivery_class DESC, m.queuing_order
                ) AS n
                LEFT JOIN dialoq.message_type AS y ON y.message_type_id = n.message_type_id
                WHERE e.conversation_group_id = @chosen AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD')
                    AND s.queue_id = @queue_id AND (@only IS NULL OR e.endpoint_id = @only)
                ORDER BY place;
                SET @took = @@ROWCOUNT;
                IF @took > 0 AND @retains = 1
                    INSERT INTO dialoq.retained_message (
                        endpoint_id, queuing_order, status, delivery_class, sequence, message_type_id, message_id, enqueued_at,
                        body, trace
                    )
                    SELECT t.endpoint_id, t.queuing_order, 0, t.delivery_class, t.sequence, t.message_type_id, t.message_id,
                        t.enqueued_at, t.body, t.trace
                    FROM @taken AS t WHERE t.item = @item;
                DELETE FROM m
                FROM @taken AS k
                JOIN dialoq.queue_message AS m WITH (ROWLOCK, FORCESEEK)
                    ON m.endpoint_id = k.endpoint_id AND m.delivery_class = k.delivery_class AND m.queuing_order = k.queuing_order
                WHERE k.item = @item
                OPTION (LOOP JOIN, FORCE ORDER);
                -- The lock of the group makes these ours alone; if they were not all there, they were not.
                IF @@ROWCOUNT <> @took
                    THROW 51205, N'messages were taken away from under the lock of their group; run the transaction again', 1;
            END
            IF @took > 0 SET @any = 1;
            EXEC dialoq.leave @queue_id, @chosen, @took, @notices OUTPUT;
            IF @group IS NOT NULL BREAK;
            -- Another had emptied it before the lock was ours: this RECEIVE looks again.
            IF @took = 0 SET @item = @item - 1;
        END
        -- If this transaction rolls back, so does this, and it is counted again.
        IF @any = 1 EXEC dialoq.forget_rollbacks @queue_id;
        -- Before COMMIT: if this failed after it, the messages would be lost.
        SET @notices = dialoq.distinct_notices(@notices);
        IF @is_own = 1 COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
        IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
        THROW;
    END CATCH
    IF @with_item = 1
        SELECT t.item, 1 AS status, t.priority, t.queuing_order, t.conversation_group_id, t.conversation_handle,
            t.sequence AS message_sequence_number, t.service_name, t.service_id, t.service_contract_name,
            t.service_contract_id, t.message_type_name, t.message_type_id, t.validation, t.body AS message_body,
            t.message_id, t.enqueued_at AS message_enqueue_time, t.trace, @notices AS notices
        FROM @taken AS t ORDER BY t.item, t.place;
    ELSE
        SELECT 1 AS status, t.priority, t.queuing_order, t.conversation_group_id, t.conversation_handle,
            t.sequence AS message_sequence_number, t.service_name, t.service_id, t.service_contract_name,
            t.service_contract_id, t.message_type_name, t.message_type_id, t.validation, t.body AS message_body,
            t.message_id, t.enqueued_at AS message_enqueue_time, t.trace, @notices AS notices
        FROM @taken AS t ORDER BY t.item, t.place;
END
GO
