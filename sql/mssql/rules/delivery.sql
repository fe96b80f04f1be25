-- Delivery: from one endpoint straight into the peer's queue, or into the transmission queue with the reason.
-- Waiting messages are tried again after a definition, such as a queue turned on.
-- Takes: see each procedure; the caller has locked the group of the sending endpoint
-- Gives: notices, added to @notices
-- Errors: none of its own, but try_revisit's
-- Locks: none that it waits for

-- The way that a message of an endpoint would take now: peer (the peer exists), service (a message there makes the target),
-- peer_ended (the peer has ended and discards it), peer_missing (the peer was erased), delayed (status says why), refused
-- (code says why).
CREATE PROCEDURE dialoq.route
    @endpoint_id bigint, @way nvarchar(12) OUTPUT, @peer_id bigint OUTPUT, @service_id int OUTPUT,
    @status nvarchar(256) OUTPUT, @code int OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_broker_enabled bit, @guid uniqueidentifier;
    DECLARE @conversation_id uniqueidentifier, @is_initiator bit, @is_peer_known bit, @far_service nvarchar(512);
    DECLARE @instance nvarchar(128), @contract_id int, @is_enqueue_enabled bit;
    DECLARE @state nvarchar(2), @group uniqueidentifier, @is_system bit;
    SET @peer_id = NULL;
    SET @service_id = NULL;
    SELECT @is_broker_enabled = b.is_broker_enabled, @guid = b.service_broker_guid
    FROM dialoq.broker AS b WHERE b.singleton = 1;
    IF @is_broker_enabled = 0
    BEGIN
        SET @way = N'delayed';
        SET @status = N'9791: the broker is disabled in this database';
        RETURN;
    END
    SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator, @is_peer_known = e.is_peer_known,
        @far_service = e.far_service, @instance = e.far_broker_instance, @contract_id = e.service_contract_id
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    IF @is_peer_known = 1 OR @is_initiator = 0
        EXEC dialoq.find_peer @conversation_id, @is_initiator, @peer_id OUTPUT, @state OUTPUT, @group OUTPUT,
            @service_id OUTPUT, @is_system OUTPUT;
    IF @peer_id IS NOT NULL
    BEGIN
        SELECT @is_enqueue_enabled = q.is_enqueue_enabled
        FROM dialoq.service AS s JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
        WHERE s.service_id = @service_id;
        SET @way = CASE WHEN @state IN (N'DO', N'CD') THEN N'peer_ended'
            WHEN @is_system = 1 OR @is_enqueue_enabled = 1 THEN N'peer' ELSE N'delayed' END;
        SET @status = N'11219: the queue of the target service is disabled';
        RETURN;
    END
    IF @is_peer_known = 1 OR @is_initiator = 0
    BEGIN
        SET @way = N'peer_missing';
        RETURN;
    END
    IF @instance <> dialoq.id_text(@guid)
    BEGIN
        SET @way = N'delayed';
        SET @status = N'9750: no route leads to the broker instance named';
        RETURN;
    END
    SET @service_id = NULL;
    SELECT @service_id = s.service_id, @is_enqueue_enabled = q.is_enqueue_enabled
    FROM dialoq.service AS s LEFT JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    WHERE s.name = @far_service AND DATALENGTH(s.name) = DATALENGTH(@far_service);
    IF @service_id IS NULL
    BEGIN
        -- Only a target that names this broker is known not to be in another database.
        SET @way = CASE WHEN @instance IS NULL THEN N'delayed' ELSE N'refused' END;
        SET @status = N'9793: no service of that name exists here';
        SET @code = -8490;
    END
    ELSE IF NOT EXISTS (
        SELECT 1 FROM dialoq.service_contract_usage AS u
        WHERE u.service_id = @service_id AND u.service_contract_id = @contract_id)
    BEGIN
        SET @way = N'refused';
        SET @code = -8408;
    END
    ELSE
    BEGIN
        SET @way = CASE @is_enqueue_enabled WHEN 1 THEN N'service' ELSE N'delayed' END;
        SET @status = N'11219: the queue of the target service is disabled';
    END
END
GO

-- The description of the Error that breaks a refused conversation.
CREATE FUNCTION dialoq.refusal(@endpoint_id bigint, @code int) RETURNS nvarchar(max) AS
BEGIN
    RETURN (
        SELECT CASE @code
            WHEN -8490 THEN CONCAT(N'the broker named in BEGIN DIALOG has no service ''', e.far_service, N'''')
            ELSE CONCAT(N'the target service ''', e.far_service, N''' does not support contract ''', c.name, N'''') END
        FROM dialoq.conversation_endpoint AS e
        LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
        WHERE e.endpoint_id = @endpoint_id);
END
GO

-- The target endpoint of a conversation, made when its first message arrives.
CREATE PROCEDURE dialoq.make_target
    @from bigint, @service_id int, @now datetime2(6), @peer_id bigint OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    INSERT INTO dialoq.conversation_endpoint (
        conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator,
        far_service, state, priority, lifetime, send_sequence, receive_sequence, is_peer_known, is_system,
        is_quarantined, begun_at, due_at
    )
    SELECT NEWID(), e.conversation_id, NEWID(), @service_id, e.service_contract_id, 0, s.name, N'CO',
        dialoq.level_for(e.service_contract_id, @service_id, s.name), e.lifetime, 0, 0, 1, 0, 0, @now,
        dialoq.next_due(N'CO', e.lifetime, NULL, NULL, NULL, @now)
    FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.endpoint_id = @from;
    SET @peer_id = SCOPE_IDENTITY();
    UPDATE dialoq.conversation_endpoint SET is_peer_known = 1 WHERE endpoint_id = @from;
END
GO

-- Puts a message into the queue of the other endpoint.
CREATE PROCEDURE dialoq.arrive
    @from bigint, @to bigint, @sequence bigint, @message_type_id int, @message_id uniqueidentifier, @body varbinary(max),
    @trace nvarchar(max), @is_end bit, @is_error bit, @body_fault nvarchar(max), @now datetime2(6),
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @state nvarchar(2), @priority int, @group uniqueidentifier, @is_system bit, @queue_id int, @order bigint;
    DECLARE @code int, @description nvarchar(max), @error varbinary(max);
    DECLARE @conversation_id uniqueidentifier, @is_initiator bit;
    IF @is_error = 1
    BEGIN
        EXEC dialoq.add_error @to, @body, @notices OUTPUT;
        RETURN;
    END
    SELECT @state = e.state, @priority = e.priority, @group = e.conversation_group_id, @is_system = e.is_system,
        @queue_id = s.queue_id
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.endpoint_id = @to;
    IF @state IS NULL
    BEGIN
        SELECT @state = N'CO', @priority = e.priority, @group = e.conversation_group_id, @is_system = e.is_system,
            @queue_id = s.queue_id
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.endpoint_id = @to;
        IF @state IS NOT NULL EXEC dialoq.find_committed_group @to, @group OUTPUT;
    END
    IF @state IS NULL
    BEGIN
        -- A transaction is just removing the endpoint. If it rolls back, the message must be there; if it commits, tick
        -- removes the message.
        SELECT @state = e.state, @priority = e.priority, @group = e.conversation_group_id, @is_system = e.is_system,
            @queue_id = s.queue_id, @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.endpoint_id = @to;
        IF @state = N'CO' AND @is_system = 0 EXEC dialoq.request_recheck @to, @conversation_id, @is_initiator;
    END
    IF @is_system = 1
    BEGIN
        -- The broker's own side of a notification discards every message except the end.
        IF @is_end = 1 EXEC dialoq.stop_notification @to, 2, @notices OUTPUT;
        RETURN;
    END
    -- An endpoint that is disconnected or broken takes no more messages.
    SET @state = dialoq.pending_state(@to, @state);
    IF @state IS NULL OR @state <> N'CO' RETURN;
    IF @is_end = 0 AND @body_fault <> N''
    BEGIN
        -- A body that fails validation breaks both sides. The receiver of bad XML sees another number than its sender.
        -- check_sent accepts only these two codes. A body fault from an earlier version gets the first one.
        SET @code = CASE WHEN LEFT(@body_fault, 6) COLLATE Latin1_General_100_BIN2 = N'-9615|' THEN -9615 ELSE -8430 END;
        SET @description = dialoq.first_characters(CASE
            WHEN LEFT(@body_fault, 6) COLLATE Latin1_General_100_BIN2 IN (N'-8430|', N'-9615|')
                THEN SUBSTRING(@body_fault, 7, 6000)
            ELSE @body_fault END, 3000);
        SET @error = dialoq.error_body(CASE @code WHEN -9615 THEN -9616 ELSE @code END, @description);
        EXEC dialoq.add_error @to, @error, @notices OUTPUT;
        EXEC dialoq.break_conversation @from, @code, @description, @now, @notices OUTPUT;
        RETURN;
    END
    INSERT INTO dialoq.queue_message (
        endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace
    ) VALUES (
        @to, 0, @sequence, @message_type_id, @message_id, @now, @body, @trace
    );
    SET @order = SCOPE_IDENTITY();
    EXEC dialoq.add_ready @queue_id, @priority, @order, @group, @notices OUTPUT;
END
GO

-- Tries to deliver a row of the transmission queue. may_go_on: whether the endpoint's next row may go now.
CREATE PROCEDURE dialoq.deliver
    @transmission_id bigint, @may_go_on bit OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @from bigint, @sequence bigint, @type_id int, @message_id uniqueidentifier, @body varbinary(max);
    DECLARE @trace nvarchar(max), @is_end bit, @is_error bit, @fault nvarchar(max), @state nvarchar(2);
    DECLARE @way nvarchar(12), @to bigint, @service_id int, @status nvarchar(256), @code int, @text nvarchar(max);
    DECLARE @now datetime2(6) = dialoq.current_time_utc();
    SET @may_go_on = 0;
    SELECT @from = t.endpoint_id, @sequence = t.sequence, @type_id = t.message_type_id, @message_id = t.message_id,
        @body = t.body, @trace = t.trace, @is_end = t.is_end_of_dialog, @is_error = t.is_conversation_error,
        @fault = t.body_fault
    FROM dialoq.transmission AS t WHERE t.transmission_id = @transmission_id;
    SELECT @state = e.state FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @from;
    -- It is held until END, or an earlier message waits.
    IF @state IS NULL OR @state IN (N'DI', N'ER') OR EXISTS (
        SELECT 1 FROM dialoq.transmission AS t WHERE t.endpoint_id = @from AND t.transmission_id < @transmission_id)
        RETURN;
    EXEC dialoq.route @from, @way OUTPUT, @to OUTPUT, @service_id OUTPUT, @status OUTPUT, @code OUTPUT;
    IF @way = N'delayed'
    BEGIN
        EXEC dialoq.hold_outbox @from, @status;
        RETURN;
    END
    IF @way = N'refused'
    BEGIN
        IF @state = N'DO'
            -- The sender has ended, so it gets no Error.
            EXEC dialoq.erase @from, @notices OUTPUT;
        ELSE
        BEGIN
            SET @text = dialoq.refusal(@from, @code);
            EXEC dialoq.break_conversation @from, @code, @text, @now, @notices OUTPUT;
        END
        RETURN;
    END
    DELETE FROM dialoq.transmission WHERE transmission_id = @transmission_id;
    IF @@ROWCOUNT = 0 RETURN;
    SET @may_go_on = 1;
    IF @way = N'peer_missing'
        EXEC dialoq.break_conversation
            @from, -8462, N'the other endpoint of the conversation is gone', @now, @notices OUTPUT;
    IF @way = N'service'
        EXEC dialoq.make_target @from, @service_id, @now, @to OUTPUT;
    IF @way IN (N'peer', N'service')
        EXEC dialoq.arrive @from, @to, @sequence, @type_id, @message_id, @body, @trace, @is_end, @is_error, @fault, @now,
            @notices OUTPUT;
    IF (@is_end = 1 OR @is_error = 1) AND @state = N'DO'
    BEGIN
        EXEC dialoq.finish @from, @now, @notices OUTPUT;
        SET @may_go_on = 0;
    END
END
GO

-- Delivers the waiting messages of one endpoint, up to the first that cannot be delivered.
CREATE PROCEDURE dialoq.redeliver
    @endpoint_id bigint, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @id bigint, @may_go_on bit = 1;
    WHILE @may_go_on = 1
    BEGIN
        SET @id = NULL;
        SELECT TOP (1) @id = t.transmission_id
        FROM dialoq.transmission AS t WHERE t.endpoint_id = @endpoint_id ORDER BY t.transmission_id;
        IF @id IS NULL RETURN;
        EXEC dialoq.deliver @id, @may_go_on OUTPUT, @notices OUTPUT;
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
END
GO

-- Sends a message of an endpoint: delivers it if no message waits before it and its way is free, else puts it into the
-- transmission queue.
CREATE PROCEDURE dialoq.dispatch
    @from bigint, @sequence bigint, @message_type_id int, @message_id uniqueidentifier, @body varbinary(max),
    @trace nvarchar(max), @is_end bit, @is_error bit, @body_fault nvarchar(max), @now datetime2(6),
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @way nvarchar(12), @to bigint, @service_id int, @status nvarchar(256), @code int, @text nvarchar(max);
    DECLARE @must_queue bit = 0, @conversation_id uniqueidentifier, @is_initiator bit;
    -- An Error overtakes waiting messages; every other message queues behind them.
    IF @is_error = 0 AND EXISTS (SELECT 1 FROM dialoq.transmission AS t WHERE t.endpoint_id = @from) SET @must_queue = 1;
    EXEC dialoq.route @from, @way OUTPUT, @to OUTPUT, @service_id OUTPUT, @status OUTPUT, @code OUTPUT;
    IF @must_queue = 1 OR @way IN (N'delayed', N'refused')
    BEGIN
        INSERT INTO dialoq.transmission (
            endpoint_id, sequence, message_type_id, is_conversation_error, is_end_of_dialog, message_id, enqueued_at,
            priority, body, trace, status, body_fault
        )
        SELECT @from, @sequence, @message_type_id, @is_error, @is_end, @message_id, @now, e.priority, @body, @trace,
            CASE @way WHEN N'delayed' THEN @status ELSE N'' END,
            @body_fault
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @from;
        IF @must_queue = 1
        BEGIN
            -- If the way has just become free, this delivers all waiting messages.
            IF @way <> N'delayed' EXEC dialoq.redeliver @from, @notices OUTPUT;
            RETURN;
        END
        IF @way = N'delayed'
        BEGIN
            -- A concurrent transaction may be removing the reason of the delay.
            SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
            FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @from;
            EXEC dialoq.request_recheck @from, @conversation_id, @is_initiator;
            RETURN;
        END
        SET @text = dialoq.refusal(@from, @code);
        EXEC dialoq.break_conversation @from, @code, @text, @now, @notices OUTPUT;
        RETURN;
    END
    IF @way = N'peer_missing'
    BEGIN
        EXEC dialoq.break_conversation
            @from, -8462, N'the other endpoint of the conversation is gone', @now, @notices OUTPUT;
        RETURN;
    END
    IF @way = N'peer_ended' RETURN;
    IF @way = N'service' EXEC dialoq.make_target @from, @service_id, @now, @to OUTPUT;
    EXEC dialoq.arrive @from, @to, @sequence, @message_type_id, @message_id, @body, @trace, @is_end, @is_error,
        @body_fault, @now, @notices OUTPUT;
END
GO

-- Delivers a row of the transmission queue, or without a row writes why an endpoint's messages wait, in a savepoint of its own.
-- If that fails, tick tries again. An error that leaves the transaction unusable is thrown with the name of the conversation:
-- the transaction is that of the definition, so it cannot go on.
-- Locks: the group, without waiting; if another transaction holds it, the endpoint is left to tick
CREATE PROCEDURE dialoq.try_revisit
    @endpoint_id bigint, @transmission_id bigint, @reason nvarchar(256), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_locked bit, @may_go_on bit, @conversation_id uniqueidentifier, @is_initiator bit, @text nvarchar(2048);
    DECLARE @handle uniqueidentifier, @error_number int;
    SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator, @handle = e.conversation_handle
    FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
    SAVE TRANSACTION dialoq_revisit;
    BEGIN TRY
        EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @notices OUTPUT;
        IF @is_locked = 1 AND @transmission_id IS NOT NULL
            EXEC dialoq.deliver @transmission_id, @may_go_on OUTPUT, @notices OUTPUT;
        IF @is_locked = 1 AND @transmission_id IS NULL
            EXEC dialoq.hold_outbox @endpoint_id, @reason;
    END TRY
    BEGIN CATCH
        SET @error_number = ERROR_NUMBER();
        SET @text = dialoq.throw_text(CONCAT(N'conversation ', dialoq.id_text(@handle),
            N' keeps the definition from taking effect (error ', @error_number, N': ', LEFT(ERROR_MESSAGE(), 1000),
            N'); end it WITH CLEANUP, then run the definition again'));
        IF @error_number IN (1205, 51205) THROW;
        IF XACT_STATE() <> 1 THROW 60018, @text, 1;
        ROLLBACK TRANSACTION dialoq_revisit;
        SET @is_locked = NULL;
    END CATCH
    IF @is_locked IS NULL AND @conversation_id IS NOT NULL
        EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
END
GO

-- Visits the transmission queue after a change of definitions: delivers what can go now, by level if HONOR_BROKER_PRIORITY is
-- ON, and updates the status of the rest. Endpoints that another transaction holds are left to tick.
-- Locks: the groups of messages that can be delivered or whose reason changes, without waiting
CREATE PROCEDURE dialoq.revisit_outboxes
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @held TABLE (endpoint_id bigint NOT NULL PRIMARY KEY);
    DECLARE @order TABLE (place int IDENTITY(1, 1) PRIMARY KEY, transmission_id bigint NOT NULL, endpoint_id bigint NOT NULL);
    DECLARE @honor bit, @endpoint_id bigint = -1, @next bigint, @status nvarchar(256), @place int = 0, @id bigint;
    DECLARE @way nvarchar(12), @peer_id bigint, @service_id int, @reason nvarchar(256), @code int, @state nvarchar(2);
    SELECT @honor = b.is_honor_broker_priority_on FROM dialoq.broker AS b WHERE b.singleton = 1;
    -- Each endpoint is read once. An endpoint whose status stays the same needs no lock.
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = t.endpoint_id, @status = t.status, @state = e.state
        FROM dialoq.transmission AS t WITH (READCOMMITTEDLOCK, READPAST)
        LEFT JOIN dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) ON e.endpoint_id = t.endpoint_id
        WHERE t.endpoint_id > @endpoint_id AND (e.state IS NULL OR e.state NOT IN (N'DI', N'ER'))
        ORDER BY t.endpoint_id, t.transmission_id;
        IF @next IS NULL BREAK;
        SET @endpoint_id = @next;
        -- READPAST passes over the row of an endpoint on which another transaction sends. Without a recheck its messages would
        -- wait in the transmission queue until its next SEND.
        IF @state IS NULL
        BEGIN
            INSERT INTO dialoq.recheck_queue (endpoint_id, conversation_id, is_initiator, recheck_at)
            SELECT e.endpoint_id, e.conversation_id, e.is_initiator, DATEADD(millisecond, 500, SYSUTCDATETIME())
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
            CONTINUE;
        END
        EXEC dialoq.route @endpoint_id, @way OUTPUT, @peer_id OUTPUT, @service_id OUTPUT, @reason OUTPUT, @code OUTPUT;
        IF @way <> N'delayed'
        BEGIN
            INSERT INTO @held (endpoint_id) VALUES (@endpoint_id);
            CONTINUE;
        END
        IF @reason = @status CONTINUE;
        EXEC dialoq.try_revisit @endpoint_id, NULL, @reason, @notices OUTPUT;
    END
    -- A message never goes before an earlier one of its conversation, whose level may be lower: reprioritise changes the
    -- level of later messages only.
    INSERT INTO @order (transmission_id, endpoint_id)
    SELECT o.transmission_id, o.endpoint_id
    FROM (
        SELECT t.transmission_id, t.endpoint_id,
            MAX(10 - t.priority) OVER (PARTITION BY t.endpoint_id ORDER BY t.transmission_id ROWS UNBOUNDED PRECEDING) AS rank_from_top
        FROM dialoq.transmission AS t WITH (READCOMMITTEDLOCK, READPAST) JOIN @held AS h ON h.endpoint_id = t.endpoint_id
    ) AS o
    ORDER BY CASE @honor WHEN 1 THEN o.rank_from_top ELSE 0 END, o.transmission_id;
    WHILE 1 = 1
    BEGIN
        SET @id = NULL;
        SELECT TOP (1) @place = o.place, @id = o.transmission_id, @endpoint_id = o.endpoint_id
        FROM @order AS o WHERE o.place > @place ORDER BY o.place;
        IF @id IS NULL BREAK;
        EXEC dialoq.try_revisit @endpoint_id, @id, NULL, @notices OUTPUT;
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
END
GO
