-- Event notifications on queues. The broker sends them on conversations of its own, whose endpoints have is_system = 1.
-- Takes: see each procedure
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: see each procedure

-- Begins the conversation of an event notification, if it has none.
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
CREATE PROCEDURE dialoq.break_notification
    @endpoint_id bigint, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @handle uniqueidentifier, @resource nvarchar(255), @is_locked bit;
    SELECT @handle = e.conversation_handle FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    EXEC dialoq.lock_definitions;
    EXEC dialoq.erase @endpoint_id, @notices OUTPUT;
    DELETE FROM dialoq.event_notification WHERE conversation_handle = @handle;
    IF @@ROWCOUNT = 0 RETURN;
    UPDATE dialoq.broker SET catalog_version = catalog_version + 1 WHERE singleton = 1;
    -- For check_catalog_version. A rollback to a savepoint frees this lock too.
    SELECT @resource = CONCAT(N'dialoq:', DB_ID(), N':raised:', b.catalog_version)
    FROM dialoq.broker AS b WHERE b.singleton = 1;
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    SET @notices = CONCAT(@notices, N' c');
END
GO

-- The target of a notification's conversation has ended it (`@message_type_id` 2) or broken it (1): the notification is
-- dropped now if its group can be locked without waiting, else by the next session that locks the group.
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

-- Ends the conversation of a notification that is dropped. Waits for a transaction that posts over it.
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

-- Posts an event of a queue to its notifications of that event.
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
        JOIN dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_handle), FORCESEEK)
            ON e.conversation_handle = n.conversation_handle
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
