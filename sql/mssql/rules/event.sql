-- Event notifications on queues, which are the broker's own conversations, and poison messages.
-- Takes: see each procedure
-- Gives: words for others, added to notices
-- Errors: none of its own
-- Locks: see each procedure

-- Begins the conversation over which a notification tells its events, if it is not there.
IF OBJECT_ID(N'dialoq.begin_notification') IS NOT NULL DROP PROCEDURE dialoq.begin_notification
GO
CREATE PROCEDURE dialoq.begin_notification
    @event_notification_id int
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @now datetime2(6) = dialoq.current_time_utc();
    INSERT INTO dialoq.conversation_endpoint (
        conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator,
        far_service, state, priority, lifetime, send_sequence, receive_sequence, is_peer_known, is_system,
        is_quarantined, begun_at
    )
    SELECT n.conversation_handle, NEWID(), NEWID(), 1, 1, 1, n.service, N'SO', 5, DATEADD(second, 2147483647, @now),
        0, 0, 0, 1, 0, @now
    FROM dialoq.event_notification AS n
    WHERE n.event_notification_id = @event_notification_id
        AND NOT EXISTS (
            SELECT 1 FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = n.conversation_handle);
END
GO

-- Drops a notification with its conversation, whose group is locked.
IF OBJECT_ID(N'dialoq.break_notification') IS NOT NULL DROP PROCEDURE dialoq.break_notification
GO
CREATE PROCEDURE dialoq.break_notification
    @endpoint_id bigint, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @handle uniqueidentifier;
    SELECT @handle = e.conversation_handle FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    EXEC dialoq.lock_definitions;
    EXEC dialoq.erase @endpoint_id, @notices OUTPUT;
    DELETE FROM dialoq.event_notification WHERE conversation_handle = @handle;
    IF @@ROWCOUNT = 0 RETURN;
    UPDATE dialoq.broker SET catalog_version = catalog_version + 1 WHERE singleton = 1;
    SET @notices = CONCAT(@notices, N' c');
END
GO

-- The other side of a notification's conversation ended (`@message_type_id` 2) or broke it (1): the notification goes,
-- now if nobody posts over it at this moment, else as soon as somebody looks.
IF OBJECT_ID(N'dialoq.stop_notification') IS NOT NULL DROP PROCEDURE dialoq.stop_notification
GO
CREATE PROCEDURE dialoq.stop_notification
    @endpoint_id bigint, @message_type_id int, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_locked bit, @now datetime2(6), @conversation_id uniqueidentifier, @is_initiator bit;
    EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @notices OUTPUT;
    IF @is_locked = 1
    BEGIN
        EXEC dialoq.break_notification @endpoint_id, @notices OUTPUT;
        RETURN;
    END
    IF @is_locked = 0 RETURN;
    SET @now = dialoq.current_time_utc();
    INSERT INTO dialoq.queue_message (endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at)
    VALUES (@endpoint_id, 2 - @message_type_id, 0, @message_type_id, NEWID(), @now);
    SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
    FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
    -- A transaction is just removing the endpoint, and may roll back.
    IF @conversation_id IS NULL
        SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    IF @conversation_id IS NOT NULL
        EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
END
GO

-- Ends the conversation of a notification that is dropped; waits for who posts over it.
IF OBJECT_ID(N'dialoq.end_notification') IS NOT NULL DROP PROCEDURE dialoq.end_notification
GO
CREATE PROCEDURE dialoq.end_notification
    @conversation_handle uniqueidentifier, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @id bigint, @is_locked bit, @now datetime2(6);
    SELECT @id = e.endpoint_id
    FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = @conversation_handle;
    IF @id IS NULL RETURN;
    EXEC dialoq.lock_endpoint @id, 1, @is_locked OUTPUT, @notices OUTPUT;
    IF @is_locked = 0 RETURN;
    SET @now = dialoq.current_time_utc();
    EXEC dialoq.end_endpoint @id, NULL, NULL, 0, @now, @notices OUTPUT;
END
GO

-- Tells everybody who asked for this event of this queue.
IF OBJECT_ID(N'dialoq.post_event') IS NOT NULL DROP PROCEDURE dialoq.post_event
GO
CREATE PROCEDURE dialoq.post_event
    @queue_id int, @event nvarchar(64), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @now datetime2(6) = dialoq.current_time_utc(), @number int = -2147483648, @next int, @id bigint;
    DECLARE @name nvarchar(256), @is_locked bit, @sequence bigint, @body varbinary(max), @message_id uniqueidentifier;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = n.event_notification_id, @id = e.endpoint_id, @name = q.name
        FROM dialoq.event_notification AS n
        JOIN dialoq.service_queue AS q ON q.queue_id = n.queue_id
        JOIN dialoq.conversation_endpoint AS e ON e.conversation_handle = n.conversation_handle
        WHERE n.queue_id = @queue_id AND n.event = @event AND n.event_notification_id > @number
        ORDER BY n.event_notification_id;
        IF @next IS NULL BREAK;
        SET @number = @next;
        EXEC dialoq.lock_endpoint @id, 1, @is_locked OUTPUT, @notices OUTPUT;
        IF @is_locked = 0 CONTINUE;
        SELECT @sequence = e.send_sequence FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @id;
        UPDATE dialoq.conversation_endpoint SET state = N'CO', send_sequence = @sequence + 1 WHERE endpoint_id = @id;
        SET @body = dialoq.event_body(@event, @name, @now);
        SET @message_id = NEWID();
        EXEC dialoq.dispatch @id, @sequence, 4, @message_id, @body, NULL, 0, 0, NULL, @now, @notices OUTPUT;
    END
END
GO

-- Forgets the rollbacks of a queue, but those that another transaction is about to forget; never waits.
IF OBJECT_ID(N'dialoq.forget_rollbacks') IS NOT NULL DROP PROCEDURE dialoq.forget_rollbacks
GO
CREATE PROCEDURE dialoq.forget_rollbacks
    @queue_id int
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':rollbacks:', @queue_id), @got int;
    IF NOT EXISTS (
        SELECT 1 FROM dialoq.queue_rollback AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.queue_id = @queue_id)
        RETURN;
    IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 0 RETURN;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0,
        @DbPrincipal = N'dialoq_user';
    IF @got >= 0 DELETE FROM dialoq.queue_rollback WITH (ROWLOCK, READPAST) WHERE queue_id = @queue_id;
END
GO

-- Forgets the rollbacks of a group's conversations, whose lock the caller holds. An UPDATE that scans would wait for every row
-- that another transaction writes, so it is a seek, and mostly there is nothing to write.
IF OBJECT_ID(N'dialoq.forget_group_rollbacks') IS NOT NULL DROP PROCEDURE dialoq.forget_group_rollbacks
GO
CREATE PROCEDURE dialoq.forget_group_rollbacks
    @group uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    IF NOT EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        WHERE e.conversation_group_id = @group AND e.rollbacks <> 0)
        RETURN;
    UPDATE e SET rollbacks = 0
    FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
    WHERE e.conversation_group_id = @group AND e.rollbacks <> 0;
END
GO

-- Counts the rollback of a transaction that received and is gone: one for each queue it received from, or with quarantine
-- for each of its groups there. Five in a row disable the queue, or set the guilty group aside. Whoever counts it first
-- has it. Locks groups with quarantine, without waiting: those that another transaction holds are passed over; the
-- definitions if it disables a queue, for which it waits 250 ms at most; then the groups of the notifications that tell of
-- it, without waiting.
IF OBJECT_ID(N'dialoq.count_attempt') IS NOT NULL DROP PROCEDURE dialoq.count_attempt
GO
CREATE PROCEDURE dialoq.count_attempt
    @attempt_id uniqueidentifier, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @gone TABLE (row_number int IDENTITY(1, 1) PRIMARY KEY, queue_id int NOT NULL, group_id uniqueidentifier NOT NULL);
    DECLARE @queue_id int = -2147483648, @next int, @number int, @group uniqueidentifier, @rollbacks int;
    DECLARE @notification int, @notification_group uniqueidentifier;
    DECLARE @is_handled bit, @is_quarantine bit, @is_locked bit, @resource nvarchar(255), @got int;
    -- One counts it; who comes second finds nothing left, and does not wait for that.
    SET @resource = CONCAT(N'dialoq:attempt:', @attempt_id);
    IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 0 RETURN;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0,
        @DbPrincipal = N'dialoq_user';
    IF @got < 0 RETURN;
    DELETE FROM a
    OUTPUT deleted.queue_id, deleted.conversation_group_id INTO @gone (queue_id, group_id)
    FROM dialoq.receive_attempt AS a WITH (ROWLOCK, INDEX (receive_attempt_attempt), FORCESEEK)
    WHERE a.attempt_id = @attempt_id;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT @next = MIN(g.queue_id) FROM @gone AS g WHERE g.queue_id > @queue_id;
        IF @next IS NULL BREAK;
        SET @queue_id = @next;
        SET @notices = CONCAT(@notices, N' q:', @queue_id);
        SET @is_handled = 0;
        SELECT @is_handled = q.is_poison_message_handling_enabled, @is_quarantine = q.is_poison_quarantine_enabled
        FROM dialoq.service_queue AS q WHERE q.queue_id = @queue_id;
        IF @is_handled = 0 CONTINUE;
        SET @number = 0;
        WHILE @is_quarantine = 1
        BEGIN
            SET @group = NULL;
            SELECT TOP (1) @number = g.row_number, @group = g.group_id
            FROM @gone AS g WHERE g.queue_id = @queue_id AND g.row_number > @number ORDER BY g.row_number;
            IF @group IS NULL BREAK;
            EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
            IF @is_locked = 0 CONTINUE;
            UPDATE e SET rollbacks = e.rollbacks + 1
            FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
            WHERE e.conversation_group_id = @group;
            SELECT @rollbacks = MAX(e.rollbacks)
            FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
            WHERE e.conversation_group_id = @group;
            IF @rollbacks >= 5
            BEGIN
                UPDATE e SET is_quarantined = 1
                FROM dialoq.conversation_endpoint AS e WITH (ROWLOCK, INDEX (conversation_endpoint_group), FORCESEEK)
                WHERE e.conversation_group_id = @group;
                EXEC dialoq.rebuild_ready_rows @group;
            END
        END
        IF @is_quarantine = 1 CONTINUE;
        INSERT INTO dialoq.queue_rollback (queue_id, counted_at) VALUES (@queue_id, SYSUTCDATETIME());
        SELECT @rollbacks = COUNT(*)
        FROM dialoq.queue_rollback AS r WITH (READCOMMITTEDLOCK, READPAST) WHERE r.queue_id = @queue_id;
        IF @rollbacks >= 5
        BEGIN
            -- If another session is changing definitions, the next rollback disables the queue instead: neither tick nor
            -- the caller of a rollback may wait for a definition that its session never ends.
            EXEC dialoq.try_lock_definitions @is_locked OUTPUT;
            -- The same if another session holds the group of a notification of that event: post_event would wait for it, and
            -- tick with it. A notification comes and goes only under the lock of definitions.
            SET @notification = -2147483648;
            WHILE @is_locked = 1
            BEGIN
                SET @notification_group = NULL;
                SELECT TOP (1) @notification = n.event_notification_id, @notification_group = e.conversation_group_id
                FROM dialoq.event_notification AS n
                JOIN dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
                    ON e.conversation_handle = n.conversation_handle
                WHERE n.queue_id = @queue_id AND n.event = N'BROKER_QUEUE_DISABLED'
                    AND n.event_notification_id > @notification
                ORDER BY n.event_notification_id;
                IF @notification_group IS NULL BREAK;
                EXEC dialoq.lock_group @notification_group, 0, @is_locked OUTPUT;
            END
            IF @is_locked = 0 CONTINUE;
            EXEC dialoq.forget_rollbacks @queue_id;
            UPDATE dialoq.service_queue SET is_receive_enabled = 0, is_enqueue_enabled = 0
            WHERE queue_id = @queue_id AND is_receive_enabled = 1;
            IF @@ROWCOUNT = 0 CONTINUE;
            UPDATE dialoq.broker SET catalog_version = catalog_version + 1 WHERE singleton = 1;
            SET @notices = CONCAT(@notices, N' c');
            EXEC dialoq.post_event @queue_id, N'BROKER_QUEUE_DISABLED', @notices OUTPUT;
        END
    END
END
GO
