-- State changes of one endpoint. Procedures of this file call only earlier ones, and those of other files.
-- Takes: see each procedure; the caller has locked the endpoint's group unless the procedure needs no lock
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: none that it waits for

-- The other endpoint of a conversation. Needs no lock. If the holder of its group is changing the row, the columns that cannot
-- change are read uncommitted, and the state counts as CO: if the endpoint has ended, it discards the message when it applies
-- it. Only a row that is being inserted or deleted is waited for.
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
    FROM dialoq.conversation_endpoint AS p WITH (INDEX (conversation_endpoint_peer), FORCESEEK)
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

-- The state of an endpoint after it has applied the messages that are pending: an Error puts it into ER, the peer's EndDialog
-- into DI. The views show the same state at the caller's isolation level (views/effective.sql).
CREATE FUNCTION dialoq.pending_state(@endpoint_id bigint, @state nvarchar(2)) RETURNS nvarchar(2) AS
BEGIN
    IF @state IN (N'SO', N'CO', N'DI') AND EXISTS (
        SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = @endpoint_id AND m.delivery_class = 1)
        RETURN N'ER';
    -- An EndDialog is the last message that a conversation receives.
    IF @state = N'CO' AND 2 = (
        SELECT TOP (1) m.message_type_id
        FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
        WHERE m.endpoint_id = @endpoint_id AND m.delivery_class = 0 ORDER BY m.queuing_order DESC)
        RETURN N'DI';
    RETURN @state;
END
GO

-- Writes the reason why the messages of an endpoint stay in the transmission queue.
CREATE PROCEDURE dialoq.hold_outbox
    @endpoint_id bigint, @status nvarchar(256)
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE t SET status = @status
    FROM dialoq.transmission AS t WITH (ROWLOCK, INDEX (transmission_endpoint), FORCESEEK)
    WHERE t.endpoint_id = @endpoint_id AND t.status <> @status;
END
GO

-- Puts an endpoint into ER or DI. Its unsent messages are held until END CONVERSATION.
CREATE PROCEDURE dialoq.put_state
    @endpoint_id bigint, @state nvarchar(2), @now datetime2(6)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @closed_retention_s bigint, @status nvarchar(256);
    SELECT @closed_retention_s = b.closed_retention_s FROM dialoq.broker AS b WHERE b.singleton = 1;
    UPDATE dialoq.conversation_endpoint
    SET state = @state,
        due_at = dialoq.earlier(retry_at,
            dialoq.next_due(@state, lifetime, dialog_timer, security_timestamp, @closed_retention_s, @now))
    WHERE endpoint_id = @endpoint_id;
    SET @status = CASE @state
        WHEN N'ER' THEN N'9784: the conversation is in error; the message is held until END CONVERSATION'
        ELSE N'9779: the other side has ended the conversation; the message is held until END CONVERSATION' END;
    EXEC dialoq.hold_outbox @endpoint_id, @status;
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
    -- Another transaction may be changing the level or the group. It then announces the message again at the new place.
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
        -- It has gone since the caller read it, and nothing else would remove the message.
        ELSE
            DELETE FROM dialoq.queue_message
            WHERE endpoint_id = @endpoint_id AND delivery_class = @delivery_class AND queuing_order = @order;
    END
    IF @group IS NOT NULL EXEC dialoq.add_ready @queue_id, @priority, @order, @group, @notices OUTPUT;
END
GO

-- Puts an Error before all other messages of an endpoint; the endpoint goes into ER when it applies it. Needs no lock. An
-- endpoint that has an Error or has ended discards another.
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
    SET @state = dialoq.pending_state(@endpoint_id, @state);
    IF @state IS NULL OR @state NOT IN (N'SO', N'CO', N'DI') RETURN;
    IF @is_system = 1
    BEGIN
        EXEC dialoq.stop_notification @endpoint_id, 1, @notices OUTPUT;
        RETURN;
    END
    EXEC dialoq.add_system_message @endpoint_id, 1, 1, @body, @now, @notices OUTPUT;
END
GO

-- Breaks an endpoint whose group is locked: queues an Error for it and puts it into ER at once.
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
    IF dialoq.pending_state(@endpoint_id, @state) <> N'ER'
    BEGIN
        SET @body = dialoq.error_body(@code, @description);
        EXEC dialoq.add_system_message @endpoint_id, 1, 1, @body, @now, @notices OUTPUT;
    END
    EXEC dialoq.put_state @endpoint_id, N'ER', @now;
END
GO

-- Erases an endpoint with all of its messages. A concurrent sender that does not see this leaves a message behind; the recheck
-- lets tick remove it.
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
    -- An endpoint that has ended may still have a message in the transmission queue, which is delivered at this moment. One that sends
    -- no more may have ended in a transaction that has committed since the messages were deleted.
    IF (@peer_id IS NULL OR @peer_state = N'CD') AND NOT EXISTS (
        SELECT 1 FROM dialoq.queue_message AS m WITH (READUNCOMMITTED) WHERE m.endpoint_id = @endpoint_id)
        RETURN;
    EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
    IF @peer_id IS NULL OR @peer_state IN (N'DO', N'CD') RETURN;
    -- With the endpoint goes its send_sequence, which says how far the peer has received. Unless an EndDialog carries it, the
    -- peer's row records it, if its group can be locked without waiting.
    IF @state = N'DO' RETURN;
    EXEC dialoq.lock_group @peer_group, 0, @is_locked OUTPUT;
    IF @is_locked = 1
        UPDATE dialoq.conversation_endpoint SET receive_sequence = @send_sequence
        WHERE endpoint_id = @peer_id AND receive_sequence < @send_sequence;
END
GO

-- This side has ended and has no row left to send: an initiator is erased, a target stays CLOSED for its retention.
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
    -- The target has reached the initiator if the initiator got a message, or an EndDialog while it was open.
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

-- Applies to an endpoint the pending messages and the events that are due.
CREATE PROCEDURE dialoq.apply_pending
    @endpoint_id bigint, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @state nvarchar(2), @is_system bit, @due datetime2(6), @conversation_id uniqueidentifier, @is_initiator bit;
    DECLARE @is_peer_known bit, @now datetime2(6), @pending_state nvarchar(2);
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
    SET @pending_state = dialoq.pending_state(@endpoint_id, @state);
    IF @pending_state <> @state
    BEGIN
        SET @state = @pending_state;
        SET @now = dialoq.current_time_utc();
        EXEC dialoq.put_state @endpoint_id, @state, @now;
        IF @state = N'DI'
            UPDATE dialoq.conversation_endpoint
            SET receive_sequence = 1 + (
                SELECT TOP (1) m.sequence
                FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
                WHERE m.endpoint_id = @endpoint_id AND m.delivery_class = 0 ORDER BY m.queuing_order DESC)
            WHERE endpoint_id = @endpoint_id;
        ELSE IF @state = N'ER'
            -- Transactions that did not see each other may have raised an Error each. The first is the only one.
            DELETE FROM m
            FROM dialoq.queue_message AS m WITH (ROWLOCK, READPAST)
            WHERE m.endpoint_id = @endpoint_id AND m.message_type_id = 1 AND m.queuing_order > (
                SELECT MIN(n.queuing_order)
                FROM dialoq.queue_message AS n WITH (READCOMMITTEDLOCK, READPAST)
                WHERE n.endpoint_id = @endpoint_id AND n.message_type_id = 1);
    END
    IF @state = N'DO'
    BEGIN
        EXEC dialoq.find_peer @conversation_id, @is_initiator, @peer_id OUTPUT, @peer_state OUTPUT, @peer_group OUTPUT,
            @peer_service OUTPUT, @peer_system OUTPUT;
        -- Both sides have ended: unsent messages are dropped, and the endpoint waits for no answer.
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
    IF @due > @now RETURN;
    EXEC dialoq.end_pause @endpoint_id, @now, @notices OUTPUT;
    EXEC dialoq.fire_timer @endpoint_id, @now, @notices OUTPUT;
    EXEC dialoq.expire @endpoint_id, @now, @notices OUTPUT;
    EXEC dialoq.reschedule @endpoint_id, @now, @notices OUTPUT;
END
GO
