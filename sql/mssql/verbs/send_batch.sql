-- SENDs of different callers in one transaction. One that is refused leaves the others alone and writes nothing.
-- Takes: send_batch_rows: for each its handle, message type (NULL is DEFAULT), body, trace context, the fault that its
--     caller found in the body, and message id; the version of the definitions the bodies were checked with
-- Gives: for each item, from 0: error_number (NULL: sent; -1: another transaction holds the group, do it alone),
--     error_message; notices in the first row
-- Errors: 60005, 60033
-- Locks: the groups of the conversations, without waiting
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.send_batch
    @sends dialoq.send_batch_rows READONLY, @catalog_version bigint = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @now datetime2(6), @is_enabled bit, @number int, @group uniqueidentifier, @is_locked bit;
    DECLARE @item int, @next int, @handle uniqueidentifier, @type_name nvarchar(4000), @type_id int, @endpoint_id bigint;
    DECLARE @body varbinary(max), @trace nvarchar(max), @fault nvarchar(max), @message_id uniqueidentifier;
    DECLARE @error_number int, @error_message nvarchar(2048), @queue_id int, @priority int, @oldest bigint;
    -- Lists as texts: 36 characters a group, 80 a row of the claim index. Loops over them read no table.
    DECLARE @groups nvarchar(max), @arrived nvarchar(max), @row nvarchar(80), @rows int, @at int = 0;
    -- Conversations with a message that is not sent because another transaction holds the group.
    DECLARE @held nvarchar(max) = N'';
    DECLARE @plain TABLE (
        item int NOT NULL PRIMARY KEY, given int NOT NULL, endpoint_id bigint NOT NULL, is_initiator bit NOT NULL,
        service_contract_id int NOT NULL, send_sequence bigint NOT NULL, behind bigint NOT NULL, peer_id bigint NOT NULL,
        peer_group uniqueidentifier NOT NULL, priority int NOT NULL, queue_id int NOT NULL, message_type_id int NULL
    );
    DECLARE @sent TABLE (endpoint_id bigint NOT NULL, queuing_order bigint NOT NULL);
    DECLARE @results TABLE (
        item int NOT NULL PRIMARY KEY, is_done bit NOT NULL, error_number int NULL, error_message nvarchar(2048) NULL
    );
    -- <transaction>
    EXEC dialoq.check_catalog_version @catalog_version;
    SELECT @now = COALESCE(b.manual_now, SYSUTCDATETIME()), @is_enabled = b.is_broker_enabled
    FROM dialoq.broker AS b WHERE b.singleton = 1;
    IF EXISTS (SELECT 1 FROM @sends AS s WHERE s.item < 0)
        THROW 60005, N'an item of the batch is below 0; items count from 0', 1;
    INSERT INTO @results (item, is_done) SELECT s.item, 0 FROM @sends AS s;
    -- The groups that no other session holds. Rows read before the locks may be old.
    SELECT @groups = STRING_AGG(CAST(g.group_id AS nvarchar(max)), N''), @rows = COUNT(*)
    FROM (
        SELECT DISTINCT CAST(h.conversation_group_id AS nvarchar(36)) AS group_id
        FROM @sends AS s
        CROSS APPLY (
            SELECT TOP (1) e.conversation_group_id
            FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
            WHERE e.conversation_handle = s.conversation_handle AND e.is_system = 0
        ) AS h
    ) AS g;
    WHILE @is_enabled = 1 AND @at < @rows
    BEGIN
        SET @group = CAST(SUBSTRING(@groups, @at * 36 + 1, 36) AS uniqueidentifier);
        SET @at = @at + 1;
        EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
    END
    -- The plain ones: a conversation that both sides speak on, with nothing before its messages and nothing wrong with
    -- them. If one message of a conversation is not plain, none of it is.
    INSERT INTO @plain (
        item, given, endpoint_id, is_initiator, service_contract_id, send_sequence, behind, peer_id, peer_group,
        priority, queue_id
    )
    SELECT s.item, s.given, e.endpoint_id, e.is_initiator, e.service_contract_id, e.send_sequence,
        ROW_NUMBER() OVER (PARTITION BY e.endpoint_id ORDER BY s.item) - 1, p.endpoint_id, p.conversation_group_id,
        p.priority, q.queue_id
    FROM (
        SELECT i.item, i.conversation_handle, COUNT(*) OVER (PARTITION BY i.conversation_handle) AS given FROM @sends AS i
    ) AS s
    CROSS APPLY (
        SELECT TOP (1) o.endpoint_id, o.is_initiator, o.service_contract_id, o.send_sequence, o.conversation_id,
            o.conversation_group_id, o.service_id, o.state, o.due_at, o.is_system
        FROM dialoq.conversation_endpoint AS o WITH (READCOMMITTEDLOCK, READPAST)
        WHERE o.conversation_handle = s.conversation_handle
    ) AS e
    CROSS APPLY (
        SELECT TOP (1) o.endpoint_id, o.conversation_group_id, o.priority, o.service_id, o.state, o.is_system
        FROM dialoq.conversation_endpoint AS o WITH (READCOMMITTEDLOCK, READPAST)
        WHERE o.conversation_id = e.conversation_id
            AND o.is_initiator = CASE e.is_initiator WHEN 1 THEN 0 ELSE 1 END
    ) AS p
    JOIN dialoq.service AS os ON os.service_id = e.service_id
    JOIN dialoq.service_queue AS oq ON oq.queue_id = os.queue_id
    JOIN dialoq.service AS ps ON ps.service_id = p.service_id
    JOIN dialoq.service_queue AS q ON q.queue_id = ps.queue_id
    WHERE @is_enabled = 1 AND oq.is_retention_enabled = 0 AND q.is_enqueue_enabled = 1
        AND e.state = N'CO' AND p.state = N'CO' AND e.is_system = 0 AND p.is_system = 0
        AND COALESCE(e.due_at, '9999-12-31') > @now
        AND (APPLOCK_MODE(N'dialoq_user', CONCAT(N'dialoq:group:', e.conversation_group_id), N'Transaction') = N'Exclusive'
            OR APPLOCK_MODE(N'dialoq_user', CONCAT(N'dialoq:group:', e.conversation_group_id), N'Session') = N'Exclusive');
    UPDATE p SET message_type_id = t.message_type_id
    FROM @plain AS p
    JOIN @sends AS s ON s.item = p.item
    JOIN dialoq.message_type AS t
        ON t.name = COALESCE(s.message_type_name, N'DEFAULT')
            AND DATALENGTH(t.name) = DATALENGTH(COALESCE(s.message_type_name, N'DEFAULT'))
    JOIN dialoq.service_contract_message_usage AS u
        ON u.service_contract_id = p.service_contract_id AND u.message_type = t.name
    WHERE t.is_dropped = 0
        AND CASE p.is_initiator WHEN 1 THEN u.is_sent_by_initiator ELSE u.is_sent_by_target END = 1
        AND COALESCE(DATALENGTH(s.message_body), 0) <= 999000000 AND COALESCE(DATALENGTH(s.trace), 0) <= 65536 * DATALENGTH(N'a')
        AND CASE WHEN DATALENGTH(s.body_fault) = 0 THEN N'N' WHEN s.body_fault IS NULL THEN t.validation END = N'N';
    -- A pending message of the endpoint, an unsent message before it, and a pending Error of the peer exclude an item.
    UPDATE p SET message_type_id = NULL
    FROM @plain AS p
    CROSS APPLY (
        SELECT TOP (1) t.transmission_id FROM dialoq.transmission AS t WHERE t.endpoint_id = p.endpoint_id
    ) AS l;
    UPDATE p SET message_type_id = NULL
    FROM @plain AS p
    CROSS APPLY (
        SELECT TOP (1) m.queuing_order
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = p.endpoint_id AND m.delivery_class = 1
    ) AS l;
    UPDATE p SET message_type_id = NULL
    FROM @plain AS p
    CROSS APPLY (
        SELECT TOP (1) m.queuing_order
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = p.peer_id AND m.delivery_class = 1
    ) AS l;
    UPDATE p SET message_type_id = NULL
    FROM @plain AS p
    CROSS APPLY (
        SELECT TOP (1) m.message_type_id
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = p.endpoint_id AND m.delivery_class = 0 ORDER BY m.queuing_order DESC
    ) AS l
    WHERE l.message_type_id = 2;
    -- READPAST can skip a row for one message and read it for the next, if another transaction ends between them.
    DELETE FROM @plain
    WHERE endpoint_id IN (
        SELECT x.endpoint_id FROM @plain AS x GROUP BY x.endpoint_id
        HAVING SUM(CASE WHEN x.message_type_id IS NULL THEN 0 ELSE 1 END) < MAX(x.given));
    INSERT INTO dialoq.queue_message (
        endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace
    )
    OUTPUT inserted.endpoint_id, inserted.queuing_order INTO @sent (endpoint_id, queuing_order)
    SELECT p.peer_id, 0, p.send_sequence + p.behind, p.message_type_id, COALESCE(s.message_id, NEWID()), @now,
        CASE WHEN DATALENGTH(s.message_body) > 0 THEN s.message_body END, s.trace
    FROM @plain AS p JOIN @sends AS s ON s.item = p.item
    ORDER BY p.item;
    UPDATE e
    SET send_sequence = e.send_sequence + (SELECT COUNT(*) FROM @plain AS x WHERE x.endpoint_id = p.endpoint_id)
    FROM @plain AS p
    JOIN dialoq.conversation_endpoint AS e WITH (ROWLOCK, FORCESEEK) ON e.endpoint_id = p.endpoint_id
    WHERE p.behind = 0
    OPTION (LOOP JOIN, FORCE ORDER);
    UPDATE @results SET is_done = 1 WHERE item IN (SELECT p.item FROM @plain AS p);
    SELECT @arrived = STRING_AGG(CAST(a.text_row AS nvarchar(max)), N''), @rows = COUNT(*)
    FROM (
        SELECT CAST(CONCAT(p.peer_group, RIGHT(CONCAT(N'            ', p.queue_id), 12),
            RIGHT(CONCAT(N'            ', p.priority), 12),
            RIGHT(CONCAT(N'                    ', MIN(s.queuing_order)), 20)) AS nvarchar(80)) AS text_row
        FROM @sent AS s
        JOIN (SELECT DISTINCT x.peer_id, x.peer_group, x.queue_id, x.priority FROM @plain AS x) AS p
            ON p.peer_id = s.endpoint_id
        GROUP BY p.peer_group, p.queue_id, p.priority
    ) AS a;
    SET @at = 0;
    WHILE @at < @rows
    BEGIN
        SET @row = SUBSTRING(@arrived, @at * 80 + 1, 80);
        SET @group = CAST(LEFT(@row, 36) AS uniqueidentifier);
        SET @queue_id = CAST(SUBSTRING(@row, 37, 12) AS int);
        SET @priority = CAST(SUBSTRING(@row, 49, 12) AS int);
        SET @oldest = CAST(SUBSTRING(@row, 61, 20) AS bigint);
        SET @at = @at + 1;
        EXEC dialoq.add_ready @queue_id, @priority, @oldest, @group, @notices OUTPUT;
    END
    SET @notices = dialoq.distinct_notices(@notices);
    -- The others, each by itself.
    SET @item = -1;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = r.item FROM @results AS r WHERE r.item > @item AND r.is_done = 0 ORDER BY r.item;
        IF @next IS NULL BREAK;
        SET @item = @next;
        SELECT @handle = s.conversation_handle, @type_name = COALESCE(s.message_type_name, N'DEFAULT'),
            @body = s.message_body, @trace = s.trace, @fault = s.body_fault,
            @message_id = COALESCE(s.message_id, NEWID())
        FROM @sends AS s WHERE s.item = @item;
        SET @error_number = NULL;
        SET @error_message = NULL;
        SET @type_id = NULL;
        SELECT @type_id = t.message_type_id
        FROM dialoq.message_type AS t WHERE t.name = @type_name AND DATALENGTH(t.name) = DATALENGTH(@type_name) AND t.is_dropped = 0;
        -- An earlier message of the conversation is not sent, so this one must not overtake it.
        IF CHARINDEX(CAST(@handle AS nvarchar(36)), @held) > 0
            SET @endpoint_id = -1;
        ELSE
            EXEC dialoq.lock_handle @handle, 0, @endpoint_id OUTPUT, @notices OUTPUT;
        IF @endpoint_id IS NULL
        BEGIN
            SET @error_number = 8426;
            SET @error_message = dialoq.unknown_handle_text(@handle);
        END
        ELSE IF @type_id IS NULL
        BEGIN
            SET @error_number = 8428;
            SET @error_message = dialoq.unknown_type_text(@type_name);
        END
        ELSE IF @endpoint_id = -1
        BEGIN
            SET @error_number = -1;
            SET @held = CONCAT(@held, CAST(@handle AS nvarchar(36)), N' ');
        END
        ELSE
        BEGIN
            EXEC dialoq.check_send @endpoint_id, @type_name, @error_number OUTPUT, @error_message OUTPUT;
            IF @error_number IS NULL
                EXEC dialoq.check_sent @body, @trace, @fault, @error_number OUTPUT, @error_message OUTPUT;
            IF @error_number < 60000 SET @error_number = @error_number - 50000;
            IF @error_number IS NULL
            BEGIN
                IF @fault IS NULL EXEC dialoq.find_body_fault @type_id, @body, @fault OUTPUT;
                EXEC dialoq.send_from @endpoint_id, @type_id, @body, @trace, @fault, @message_id, @notices OUTPUT;
            END
        END
        IF @error_number IS NOT NULL
            UPDATE @results SET error_number = @error_number, error_message = @error_message WHERE item = @item;
    END
    -- </transaction>
    SET @notices = dialoq.distinct_notices(@notices);
    SELECT r.item, r.error_number, r.error_message, CASE r.item WHEN 0 THEN @notices END AS notices
    FROM @results AS r ORDER BY r.item;
END
GO
