-- State changes of one endpoint. Procedures of this file call only earlier ones, and those of other files.
-- Takes: see each procedure; the caller has locked the endpoint's group unless the procedure needs no lock
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: none that it waits for

-- The other endpoint of a conversation, needing no lock. Its row may be under change by whoever holds its group; then
-- what cannot change is read past that, and its state is taken for listening: what is told to it then is dropped by
-- whoever looks at it, if it has ended. Only a row that is just being made or removed is waited for.
CREATE PROCEDURE dialoq.find_peer
    @conversation_id uniqueidentifier, @is_initiator bit, @peer_id bigint OUTPUT, @state nvarchar(2) OUTPUT,
    @group uniqueidentifier OUTPUT, @service_id int OUTPUT, @is_system bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @other bit = CASE @is_initiator WHEN 1 THEN 0 ELSE 1 END;
    SET @peer_id = NULL;
    SET @state = NULL;
    SELECT @peer_id = p.endpoint_id, @state = p.state, @group = p.conversation_group_id, @service_id = p.service_id,
        @is_system = p.is_system
    FROM dialoq.conversation_endpoint AS p WITH (READCOMMITTEDLOCK, READPAST)
    WHERE p.conversation_id = @conversation_id AND p.is_initiator = @other;
    IF @peer_id IS NOT NULL RETURN;
    SELECT @peer_id = p.endpoint_id, @state = N'CO', @group = p.conversation_group_id, @service_id = p.service_id,
        @is_system = p.is_system
    FROM dialoq.conversation_endpoint AS p WITH (READUNCOMMITTED)
    WHERE p.conversation_id = @conversation_id AND p.is_initiator = @other;
    IF @peer_id IS NOT NULL RETURN;
    SELECT @peer_id = p.endpoint_id, @state = p.state, @group = p.conversation_group_id, @service_id = p.service_id,
        @is_system = p.is_system
    FROM dialoq.conversation_endpoint AS p
    WHERE p.conversation_id = @conversation_id AND p.is_initiator = @other;
END
GO

-- Reads the committed group of an endpoint, without waiting; @group keeps its value if there is none. A message that arrives
-- during another transaction's MOVE is announced in that group, because a rollback of the MOVE announces nothing. If the server
-- keeps no committed version of the row, tick checks the endpoint later.
CREATE PROCEDURE dialoq.find_committed_group
    @endpoint_id bigint, @group uniqueidentifier OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    DECLARE @conversation_id uniqueidentifier, @is_initiator bit;
    BEGIN TRY
        SELECT @group = e.conversation_group_id
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
        IF @conversation_id IS NOT NULL EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
    END CATCH
END
GO

-- Sets the state of an endpoint, and when something next happens to it.
CREATE PROCEDURE dialoq.put_state
    @endpoint_id bigint, @state nvarchar(2), @now datetime2(6)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @closed_retention_s bigint;
    SELECT @closed_retention_s = b.closed_retention_s FROM dialoq.broker AS b WHERE b.singleton = 1;
    UPDATE dialoq.conversation_endpoint
    SET state = @state,
        due_at = dialoq.next_due(@state, lifetime, dialog_timer, security_timestamp, @closed_retention_s, @now)
    WHERE endpoint_id = @endpoint_id;
END
GO

-- Why everything of an endpoint that waits in the transmission queue waits.
CREATE PROCEDURE dialoq.hold_outbox
    @endpoint_id bigint, @status nvarchar(256)
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE dialoq.transmission SET status = @status WHERE endpoint_id = @endpoint_id AND status <> @status;
END
GO

-- Queues an Error (delivery_class 1, type 1) or a DialogTimer (delivery_class 2, type 3). Needs no lock.
CREATE PROCEDURE dialoq.add_system_message
    @endpoint_id bigint, @delivery_class smallint, @message_type_id int, @body varbinary(max), @now datetime2(6),
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @order bigint, @priority int, @group uniqueidentifier, @queue_id int;
    DECLARE @conversation_id uniqueidentifier, @is_initiator bit;
    INSERT INTO dialoq.queue_message (endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body)
    VALUES (@endpoint_id, @delivery_class, 0, @message_type_id, NEWID(), @now, @body);
    SET @order = SCOPE_IDENTITY();
    -- What decides where it is announced may be under change: who changes it puts the announcement right.
    SELECT @priority = e.priority, @group = e.conversation_group_id, @queue_id = s.queue_id
    FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.endpoint_id = @endpoint_id;
    IF @group IS NOT NULL
        EXEC dialoq.find_committed_group @endpoint_id, @group OUTPUT;
    ELSE
    BEGIN
        -- A transaction is just removing the endpoint. If it rolls back, the message must be found; if it commits, tick
        -- removes the message.
        SELECT @priority = e.priority, @group = e.conversation_group_id, @queue_id = s.queue_id,
            @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.endpoint_id = @endpoint_id;
        IF @group IS NOT NULL EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
    END
    IF @group IS NOT NULL EXEC dialoq.add_ready @queue_id, @priority, @order, @group, @notices OUTPUT;
END
GO

-- Tells an endpoint of an error: an Error row before all others, and no more sending once it takes note. Broken already,
-- or deaf: an Error that reaches an endpoint after its END is discarded. Needs no lock.
CREATE PROCEDURE dialoq.add_error
    @endpoint_id bigint, @body varbinary(max), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_system bit, @state nvarchar(2), @now datetime2(6) = dialoq.current_time_utc();
    SELECT @is_system = e.is_system, @state = e.state
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) WHERE e.endpoint_id = @endpoint_id;
    IF @state IS NULL
        SELECT @is_system = e.is_system, @state = N'CO'
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
    -- A transaction that is just removing the endpoint may roll back.
    IF @state IS NULL
        SELECT @is_system = e.is_system, @state = e.state
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    IF @state IS NULL OR @state NOT IN (N'SO', N'CO', N'DI') RETURN;
    IF EXISTS (
        SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = @endpoint_id AND m.delivery_class = 1)
        RETURN;
    IF @is_system = 1
    BEGIN
        EXEC dialoq.stop_notification @endpoint_id, 1, @notices OUTPUT;
        RETURN;
    END
    EXEC dialoq.add_system_message @endpoint_id, 1, 1, @body, @now, @notices OUTPUT;
END
GO

-- Breaks a conversation's endpoint whose group is locked: the row that tells of it, and the state at once.
CREATE PROCEDURE dialoq.break_conversation
    @endpoint_id bigint, @code int, @description nvarchar(max), @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @state nvarchar(2), @is_system bit, @body varbinary(max);
    SELECT @state = e.state, @is_system = e.is_system
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    IF @state IS NULL OR @state NOT IN (N'SO', N'CO', N'DI') RETURN;
    IF @is_system = 1
    BEGIN
        EXEC dialoq.break_notification @endpoint_id, @notices OUTPUT;
        RETURN;
    END
    IF NOT EXISTS (
        SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = @endpoint_id AND m.delivery_class = 1)
    BEGIN
        SET @body = dialoq.error_body(@code, @description);
        EXEC dialoq.add_system_message @endpoint_id, 1, 1, @body, @now, @notices OUTPUT;
    END
    EXEC dialoq.put_state @endpoint_id, N'ER', @now;
    EXEC dialoq.hold_outbox @endpoint_id,
        N'9784: the conversation is in error; the message is held until END CONVERSATION';
END
GO

-- Takes an endpoint away, and all that waits. Whoever tells it something without having seen this leaves a row that tick
-- finds by what is noted here.
CREATE PROCEDURE dialoq.erase
    @endpoint_id bigint, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @conversation_id uniqueidentifier, @is_initiator bit, @group uniqueidentifier, @state nvarchar(2);
    DECLARE @send_sequence bigint, @removed int, @is_locked bit;
    DECLARE @peer_id bigint, @peer_state nvarchar(2), @peer_group uniqueidentifier, @peer_service int, @peer_system bit;
    SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator, @group = e.conversation_group_id,
        @state = e.state, @send_sequence = e.send_sequence
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    IF @group IS NULL RETURN;
    DELETE FROM dialoq.conversation_endpoint WHERE endpoint_id = @endpoint_id;
    DELETE FROM dialoq.queue_message WITH (ROWLOCK, READPAST) WHERE endpoint_id = @endpoint_id;
    SET @removed = @@ROWCOUNT;
    DELETE FROM r FROM dialoq.retained_message AS r WITH (ROWLOCK, FORCESEEK) WHERE r.endpoint_id = @endpoint_id;
    DELETE FROM t
    FROM dialoq.transmission AS t WITH (ROWLOCK, INDEX (transmission_endpoint), FORCESEEK)
    WHERE t.endpoint_id = @endpoint_id;
    IF @removed > 0 EXEC dialoq.rebuild_ready_rows @group;
    EXEC dialoq.find_peer @conversation_id, @is_initiator, @peer_id OUTPUT, @peer_state OUTPUT, @peer_group OUTPUT,
        @peer_service OUTPUT, @peer_system OUTPUT;
    -- One that has ended may still have something in the transmission queue, which leaves at this moment.
    IF @peer_id IS NULL OR @peer_state = N'CD' RETURN;
    EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
    IF @peer_state = N'DO' RETURN;
    -- The row that told how far the peer has received is gone. Who does not know it from an EndDialog is told now, if that
    -- does not mean waiting.
    IF @state = N'DO' RETURN;
    EXEC dialoq.lock_group @peer_group, 0, @is_locked OUTPUT;
    IF @is_locked = 1
        UPDATE dialoq.conversation_endpoint SET receive_sequence = @send_sequence
        WHERE endpoint_id = @peer_id AND receive_sequence < @send_sequence;
END
GO

-- This side has ended and owes nothing: an initiator goes, a target stays CLOSED for a while.
CREATE PROCEDURE dialoq.finish
    @endpoint_id bigint, @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_initiator bit, @send_sequence bigint, @lifetime datetime2(6), @group uniqueidentifier;
    DECLARE @closed bigint, @unconfirmed bigint, @security datetime2(6), @due datetime2(6);
    SELECT @is_initiator = e.is_initiator, @send_sequence = e.send_sequence, @lifetime = e.lifetime,
        @group = e.conversation_group_id
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    IF @is_initiator = 1
    BEGIN
        EXEC dialoq.erase @endpoint_id, @notices OUTPUT;
        RETURN;
    END
    SELECT @closed = b.closed_retention_s, @unconfirmed = b.unconfirmed_retention_s
    FROM dialoq.broker AS b WHERE b.singleton = 1;
    -- The initiator heard from the target if it got a message, or the target's own end while it was listening.
    IF @send_sequence > 0
        SET @security = DATEADD(second, CAST(@closed AS int), @now);
    ELSE
        SET @security = DATEADD(second, CAST(@unconfirmed AS int), @now);
    SET @due = dialoq.next_due(N'CD', @lifetime, NULL, @security, @closed, @now);
    UPDATE dialoq.conversation_endpoint
    SET state = N'CD', dialog_timer = NULL, security_timestamp = @security, due_at = @due
    WHERE endpoint_id = @endpoint_id;
    DELETE FROM dialoq.queue_message WITH (ROWLOCK, READPAST) WHERE endpoint_id = @endpoint_id;
    EXEC dialoq.rebuild_ready_rows @group;
    SET @notices = CONCAT(@notices, dialoq.due_notice(@due));
END
GO

-- Brings an endpoint up to date with what it was told and what is due.
CREATE PROCEDURE dialoq.apply_pending
    @endpoint_id bigint, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @state nvarchar(2), @is_system bit, @due datetime2(6), @conversation_id uniqueidentifier, @is_initiator bit;
    DECLARE @is_peer_known bit, @now datetime2(6), @last_type int, @last_sequence bigint;
    DECLARE @peer_id bigint, @peer_state nvarchar(2), @peer_group uniqueidentifier, @peer_service int, @peer_system bit;
    SELECT @state = e.state, @is_system = e.is_system, @due = e.due_at, @conversation_id = e.conversation_id,
        @is_initiator = e.is_initiator, @is_peer_known = e.is_peer_known
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    IF @state IS NULL RETURN;
    IF @is_system = 1
    BEGIN
        IF EXISTS (
            SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST) WHERE m.endpoint_id = @endpoint_id)
            EXEC dialoq.break_notification @endpoint_id, @notices OUTPUT;
        RETURN;
    END
    IF @state IN (N'SO', N'CO', N'DI') AND EXISTS (
        SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = @endpoint_id AND m.delivery_class = 1)
    BEGIN
        SET @state = N'ER';
        SET @now = dialoq.current_time_utc();
        EXEC dialoq.put_state @endpoint_id, N'ER', @now;
        EXEC dialoq.hold_outbox @endpoint_id,
            N'9784: the conversation is in error; the message is held until END CONVERSATION';
    END
    IF @state = N'CO'
    BEGIN
        SELECT TOP (1) @last_type = m.message_type_id, @last_sequence = m.sequence
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = @endpoint_id AND m.delivery_class = 0
        ORDER BY m.queuing_order DESC;
        IF @last_type = 2
        BEGIN
            SET @state = N'DI';
            SET @now = dialoq.current_time_utc();
            EXEC dialoq.put_state @endpoint_id, N'DI', @now;
            UPDATE dialoq.conversation_endpoint SET receive_sequence = @last_sequence + 1
            WHERE endpoint_id = @endpoint_id;
            EXEC dialoq.hold_outbox @endpoint_id,
                N'9779: the other side has ended the conversation; the message is held until END CONVERSATION';
        END
    END
    IF @state = N'DO'
    BEGIN
        EXEC dialoq.find_peer @conversation_id, @is_initiator, @peer_id OUTPUT, @peer_state OUTPUT, @peer_group OUTPUT,
            @peer_service OUTPUT, @peer_system OUTPUT;
        -- Both have ended: what it still had to say is dropped, and it need not wait for an answer.
        IF @peer_state IN (N'DO', N'CD') OR @peer_id IS NULL AND (@is_peer_known = 1 OR @is_initiator = 0)
        BEGIN
            DELETE FROM t
            FROM dialoq.transmission AS t WITH (ROWLOCK, INDEX (transmission_endpoint), FORCESEEK)
            WHERE t.endpoint_id = @endpoint_id;
            SET @now = dialoq.current_time_utc();
            EXEC dialoq.finish @endpoint_id, @now, @notices OUTPUT;
            RETURN;
        END
    END
    IF @state IN (N'DO', N'CD')
        DELETE FROM dialoq.queue_message WITH (ROWLOCK, READPAST) WHERE endpoint_id = @endpoint_id;
    IF @due IS NULL RETURN;
    SET @now = dialoq.current_time_utc();
    IF @due <= @now EXEC dialoq.fall_due @endpoint_id, @now, @notices OUTPUT;
END
GO
