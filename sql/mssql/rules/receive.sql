-- RECEIVE, after the verbs have checked the arguments.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: 51205 if a message was deleted although the group was locked
-- Locks: groups, without waiting

-- Locks the group of a RECEIVE and applies what is pending on its conversations: `@group` if it has messages, or if that is
-- NULL the best group of the queue. chosen is NULL if there is none. is_new: whether this transaction did not hold the group
-- before and has changed nothing in it. The other arguments are choose's.
CREATE PROCEDURE dialoq.claim
    @queue_id int, @group uniqueidentifier, @only bigint, @from_top int, @to_top int, @by_age bit, @past_top int OUTPUT,
    @past bigint OUTPUT, @seen nvarchar(max) OUTPUT, @chosen uniqueidentifier OUTPUT, @is_new bit OUTPUT,
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_locked bit, @now datetime2(6), @id bigint = 0;
    SET @chosen = NULL;
    SET @is_new = 0;
    IF @group IS NULL
        EXEC dialoq.choose @queue_id, @from_top, @to_top, @by_age, @past_top OUTPUT, @past OUTPUT, @seen OUTPUT,
            @chosen OUTPUT, @is_new OUTPUT;
    ELSE IF EXISTS (
        SELECT 1
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        JOIN dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) ON e.endpoint_id = m.endpoint_id
        WHERE e.conversation_group_id = @group AND (@only IS NULL OR e.endpoint_id = @only) AND e.is_quarantined = 0)
    BEGIN
        EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT, @is_new OUTPUT;
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
            AND (e.due_at <= @now OR e.state = N'DO' OR dialoq.pending_state(e.endpoint_id, e.state) <> e.state);
        IF @id IS NULL RETURN;
        SET @is_new = 0;
        EXEC dialoq.apply_pending @id, @notices OUTPUT;
    END
END
GO

-- Ends the taking of messages from a group, or of none: resets the rollbacks of its conversations, corrects its rows. If there was
-- none, a group that is new (claim) is free again: until the end of this transaction its senders and receivers would wait for nothing.
CREATE PROCEDURE dialoq.leave
    @queue_id int, @group uniqueidentifier, @is_new bit, @took int, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_ready bit;
    IF @took > 0 EXEC dialoq.forget_group_rollbacks @group;
    EXEC dialoq.rebuild_ready_rows @group, @is_ready OUTPUT;
    IF @is_ready = 1 SET @notices = CONCAT(@notices, N' q:', @queue_id);
    IF @took = 0 AND @is_new = 1 EXEC dialoq.unlock_group @group;
END
GO

-- Takes the first message of a group whose lock the caller holds, or of its conversation `@only`: of the first
-- conversation by level downwards, then by handle; of that the timers, the errors, then in sequence. took: 1, or 0 if there
-- is none.
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
    -- READPAST reads row by row. If a sender commits while it reads, it may have passed over an earlier message of the conversation
    -- and still give this one. Then nothing is taken: the earlier one can be received in a moment. Messages of a conversation have
    -- one sender at a time, so an earlier one is there only in that case.
    IF @delivery_class = 0 AND EXISTS (
        SELECT 1 FROM dialoq.queue_message AS n WITH (READUNCOMMITTED)
        WHERE n.endpoint_id = @endpoint_id AND n.delivery_class = 0 AND n.queuing_order < @order)
    BEGIN
        SET @took = 0;
        RETURN;
    END
    IF EXISTS (SELECT 1 FROM dialoq.service_queue AS q WHERE q.queue_id = @queue_id AND q.is_retention_enabled = 1)
        EXEC dialoq.retain_received @endpoint_id, @delivery_class, @order;
    DELETE FROM dialoq.queue_message
    WHERE endpoint_id = @endpoint_id AND delivery_class = @delivery_class AND queuing_order = @order;
    -- Only the holder of the group's lock deletes its messages. If the message is missing, another session
    -- deleted it without the lock.
    IF @@ROWCOUNT <> 1
        THROW 51205, N'a message was taken away from under the lock of its group; run the transaction again', 1;
    -- Before COMMIT: if this failed after COMMIT, the message would be lost.
    SELECT @service = s.name, @contract = c.name, @type = y.name,
        @validation = CASE y.validation WHEN N'V' THEN N'X' WHEN N'S' THEN N'J' ELSE y.validation END
    FROM dialoq.service AS s
    LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = @contract_id
    LEFT JOIN dialoq.message_type AS y ON y.message_type_id = @type_id
    WHERE s.service_id = @service_id;
END
GO

-- Receives one message and gives it: from the best group of the queue that no other session holds, within the bounds; or from
-- `@group`; or from the one conversation `@only` of it.
CREATE PROCEDURE dialoq.receive_one
    @queue_id int, @group uniqueidentifier, @only bigint, @from_top int, @to_top int, @by_age bit
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @notices nvarchar(max), @chosen uniqueidentifier, @past_top int = @from_top, @past bigint = -1, @took int = 0;
    DECLARE @seen nvarchar(max) = N'', @is_new bit;
    DECLARE @order bigint, @sequence bigint, @type_id int, @message_id uniqueidentifier, @enqueued_at datetime2(6);
    DECLARE @body varbinary(max), @trace nvarchar(max), @priority int, @handle uniqueidentifier, @service_id int;
    DECLARE @contract_id int, @service nvarchar(256), @contract nvarchar(256), @type nvarchar(256), @validation nvarchar(1);
    -- <transaction>
    WHILE @took = 0
    BEGIN
        EXEC dialoq.claim @queue_id, @group, @only, @from_top, @to_top, @by_age, @past_top OUTPUT, @past OUTPUT,
            @seen OUTPUT, @chosen OUTPUT, @is_new OUTPUT, @notices OUTPUT;
        IF @chosen IS NULL BREAK;
        EXEC dialoq.take_first @queue_id, @chosen, @only, @took OUTPUT, @order OUTPUT, @sequence OUTPUT, @type_id OUTPUT,
            @message_id OUTPUT, @enqueued_at OUTPUT, @body OUTPUT, @trace OUTPUT, @priority OUTPUT, @handle OUTPUT,
            @service_id OUTPUT, @contract_id OUTPUT, @service OUTPUT, @contract OUTPUT, @type OUTPUT, @validation OUTPUT;
        EXEC dialoq.leave @queue_id, @chosen, @is_new, @took, @notices OUTPUT;
        -- Another transaction had emptied the group before this one locked it: this RECEIVE tries the next group.
        IF @group IS NOT NULL BREAK;
    END
    -- If this transaction rolls back, so does this, and it is counted again.
    IF @took = 1 EXEC dialoq.forget_rollbacks @queue_id;
    -- Before COMMIT: if this failed after COMMIT, the message would be lost.
    SET @notices = dialoq.distinct_notices(@notices);
    -- </transaction>
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

-- Executes RECEIVEs one after the other and gives their messages in one result. with_item: whether the result has a column
-- that says which RECEIVE got a message. The other arguments are receive_one's. Each takes from one group.
CREATE PROCEDURE dialoq.receive_items
    @queue_id int, @items dialoq.receive_batch_rows READONLY, @group uniqueidentifier, @only bigint, @from_top int,
    @to_top int, @by_age bit, @start_top int, @start bigint, @with_item bit
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @notices nvarchar(max), @item int = -1, @next int, @top bigint, @chosen uniqueidentifier, @took int, @any bit = 0;
    DECLARE @retains bit, @past_top int = COALESCE(@start_top, @from_top), @past bigint = COALESCE(@start, -1);
    DECLARE @seen nvarchar(max) = N'', @is_new bit;
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
    -- <transaction>
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
            @seen OUTPUT, @chosen OUTPUT, @is_new OUTPUT, @notices OUTPUT;
        IF @chosen IS NULL AND @start_top IS NULL BREAK;
        IF @chosen IS NULL
        BEGIN
            -- No message is left after the given start: begin again at the first row.
            SET @start_top = NULL;
            SET @past_top = @from_top;
            SET @past = -1;
            SET @seen = N'';
            SET @item = @item - 1;
            CONTINUE;
        END
        -- Nearly every RECEIVE takes this branch. It uses no table variable, because not
        -- every server caches plans over them.
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
            -- As in take_first: what comes after a message that was passed over is not taken.
            IF EXISTS (
                SELECT 1
                FROM (
                    SELECT t.endpoint_id, COUNT(*) AS messages, MAX(t.queuing_order) AS last_order
                    FROM @taken AS t WHERE t.item = @item AND t.delivery_class = 0 GROUP BY t.endpoint_id
                ) AS l
                WHERE l.messages < (
                    SELECT COUNT(*) FROM dialoq.queue_message AS m WITH (READUNCOMMITTED)
                    WHERE m.endpoint_id = l.endpoint_id AND m.delivery_class = 0 AND m.queuing_order <= l.last_order))
            BEGIN
                DELETE FROM k
                FROM @taken AS k
                WHERE k.item = @item AND k.delivery_class = 0 AND EXISTS (
                    SELECT 1 FROM dialoq.queue_message AS m WITH (READUNCOMMITTED)
                    WHERE m.endpoint_id = k.endpoint_id AND m.delivery_class = 0 AND m.queuing_order < k.queuing_order
                        AND NOT EXISTS (
                            SELECT 1 FROM @taken AS x
                            WHERE x.item = @item AND x.endpoint_id = m.endpoint_id AND x.queuing_order = m.queuing_order));
                SET @took = @took - @@ROWCOUNT;
            END
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
            -- Only the holder of the group's lock deletes its messages. If some are missing, another
            -- session deleted them without the lock.
            IF @@ROWCOUNT <> @took
                THROW 51205, N'messages were taken away from under the lock of their group; run the transaction again', 1;
        END
        IF @took > 0 SET @any = 1;
        EXEC dialoq.leave @queue_id, @chosen, @is_new, @took, @notices OUTPUT;
        IF @group IS NOT NULL BREAK;
        -- The group may have an older message than the one that was taken. Then its row is the same, and the next RECEIVE reads it again.
        IF @took > 0 SET @seen = REPLACE(@seen, CONCAT(CAST(@chosen AS nvarchar(36)), N' '), N'');
        -- Another transaction had emptied the group before this one locked it: the same RECEIVE tries the next group.
        ELSE SET @item = @item - 1;
    END
    -- If this transaction rolls back, so does this, and it is counted again.
    IF @any = 1 EXEC dialoq.forget_rollbacks @queue_id;
    -- Before COMMIT: if this failed after COMMIT, the messages would be lost.
    SET @notices = dialoq.distinct_notices(@notices);
    -- </transaction>
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
