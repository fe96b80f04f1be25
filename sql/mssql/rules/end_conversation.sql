-- END CONVERSATION: one side ends. The caller has locked the endpoint's group.
-- Takes: see each procedure
-- Gives: notices, added to @notices
-- Errors: none of its own
-- Locks: the peer's group if the peer has ended already, without waiting

-- Sends the peer an EndDialog or an Error. The endpoint stays in DO until it is delivered.
CREATE PROCEDURE dialoq.send_end
    @endpoint_id bigint, @error_code int, @description nvarchar(max), @now datetime2(6), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @sequence bigint, @type_id int = 2, @is_end bit = 1, @is_error bit = 0, @body varbinary(max), @closed bigint;
    DECLARE @message_id uniqueidentifier = NEWID(), @conversation_id uniqueidentifier, @is_initiator bit;
    SELECT @closed = b.closed_retention_s FROM dialoq.broker AS b WHERE b.singleton = 1;
    SELECT @sequence = e.send_sequence, @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    UPDATE dialoq.conversation_endpoint
    SET state = N'DO', end_dialog_sequence = @sequence, send_sequence = @sequence + 1, dialog_timer = NULL,
        due_at = dialoq.next_due(N'DO', lifetime, NULL, security_timestamp, @closed, @now)
    WHERE endpoint_id = @endpoint_id;
    IF @error_code IS NOT NULL
    BEGIN
        SET @type_id = 1;
        SET @is_end = 0;
        SET @is_error = 1;
        SET @body = dialoq.error_body(@error_code, @description);
    END
    EXEC dialoq.dispatch @endpoint_id, @sequence, @type_id, @message_id, @body, NULL, @is_end, @is_error, NULL, @now,
        @notices OUTPUT;
    IF EXISTS (SELECT 1 FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id AND e.state = N'DO')
        AND NOT EXISTS (
            SELECT 1 FROM dialoq.transmission AS t WITH (INDEX (transmission_endpoint), FORCESEEK)
            WHERE t.endpoint_id = @endpoint_id AND (t.is_end_of_dialog = 1 OR t.is_conversation_error = 1))
    BEGIN
        -- A concurrent sender that does not see this end leaves a message behind; the recheck removes it.
        EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
        EXEC dialoq.finish @endpoint_id, @now, @notices OUTPUT;
    END
END
GO

-- Ends an endpoint in one of the three forms: plain, with an error (`@error_code` is not NULL), with cleanup.
CREATE PROCEDURE dialoq.end_endpoint
    @endpoint_id bigint, @error_code int, @description nvarchar(max), @is_cleanup bit, @now datetime2(6),
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @state nvarchar(2), @conversation_id uniqueidentifier, @is_initiator bit, @is_peer_known bit;
    DECLARE @group uniqueidentifier, @is_locked bit, @error varbinary(max), @queue_id int = -2147483648, @next int;
    DECLARE @peer_id bigint, @peer_state nvarchar(2), @peer_group uniqueidentifier, @peer_service int, @peer_system bit;
    DECLARE @peer_side bit;
    SELECT @state = e.state, @conversation_id = e.conversation_id, @is_initiator = e.is_initiator,
        @is_peer_known = e.is_peer_known, @group = e.conversation_group_id
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    IF @is_peer_known = 1
        EXEC dialoq.find_peer @conversation_id, @is_initiator, @peer_id OUTPUT, @peer_state OUTPUT, @peer_group OUTPUT,
            @peer_service OUTPUT, @peer_system OUTPUT;
    DELETE FROM dialoq.queue_message WITH (ROWLOCK, READPAST) WHERE endpoint_id = @endpoint_id;
    IF @@ROWCOUNT > 0 EXEC dialoq.rebuild_ready_rows @group;
    DELETE FROM r FROM dialoq.retained_message AS r WITH (ROWLOCK, FORCESEEK) WHERE r.endpoint_id = @endpoint_id;
    IF @is_cleanup = 1 OR @state IN (N'SO', N'SI')
        EXEC dialoq.erase @endpoint_id, @notices OUTPUT;
    ELSE IF @state = N'CO'
    BEGIN
        IF @error_code IS NOT NULL
            DELETE FROM t
            FROM dialoq.transmission AS t WITH (ROWLOCK, INDEX (transmission_endpoint), FORCESEEK)
            WHERE t.endpoint_id = @endpoint_id;
        IF @error_code IS NOT NULL AND @is_initiator = 1 AND @is_peer_known = 0
            -- The target does not exist yet, and an Error may not be the first message of a conversation.
            EXEC dialoq.erase @endpoint_id, @notices OUTPUT;
        ELSE
            EXEC dialoq.send_end @endpoint_id, @error_code, @description, @now, @notices OUTPUT;
    END
    ELSE IF @state = N'DI'
    BEGIN
        DELETE FROM t
        FROM dialoq.transmission AS t WITH (ROWLOCK, INDEX (transmission_endpoint), FORCESEEK)
        WHERE t.endpoint_id = @endpoint_id;
        EXEC dialoq.finish @endpoint_id, @now, @notices OUTPUT;
    END
    ELSE IF @state = N'ER'
    BEGIN
        -- The peer is still open only if the error was this side's alone. One whose LIFETIME is over gets the Error of that.
        IF @peer_state IN (N'SO', N'CO') AND NOT EXISTS (
            SELECT 1 FROM dialoq.conversation_endpoint AS p WITH (READUNCOMMITTED)
            WHERE p.endpoint_id = @peer_id AND p.lifetime <= @now)
        BEGIN
            SET @error = dialoq.error_body(-8462, N'the other endpoint of the conversation has ended');
            EXEC dialoq.add_error @peer_id, @error, @notices OUTPUT;
        END
        EXEC dialoq.erase @endpoint_id, @notices OUTPUT;
    END
    -- The others of the group can be received from again, once this transaction is over.
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT @next = MIN(r.queue_id)
        FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
        WHERE r.conversation_group_id = @group AND r.queue_id > @queue_id;
        IF @next IS NULL BREAK;
        SET @queue_id = @next;
        SET @notices = CONCAT(@notices, N' q:', @queue_id);
    END
    -- Both have ended now: no side's unsent messages reach anyone, whatever delays them, and none need wait for an answer.
    IF @peer_state = N'DO'
    BEGIN
        EXEC dialoq.lock_endpoint @peer_id, 0, @is_locked OUTPUT, @notices OUTPUT;
        IF @is_locked IS NULL
        BEGIN
            SET @peer_side = CASE @is_initiator WHEN 1 THEN 0 ELSE 1 END;
            EXEC dialoq.request_recheck @peer_id, @conversation_id, @peer_side;
        END
    END
    IF (@peer_state IN (N'DO', N'CD') OR @peer_id IS NULL AND (@is_peer_known = 1 OR @is_initiator = 0))
        AND EXISTS (SELECT 1 FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id AND e.state = N'DO')
    BEGIN
        DELETE FROM t
        FROM dialoq.transmission AS t WITH (ROWLOCK, INDEX (transmission_endpoint), FORCESEEK)
        WHERE t.endpoint_id = @endpoint_id;
        -- As in send_end.
        EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
        EXEC dialoq.finish @endpoint_id, @now, @notices OUTPUT;
    END
END
GO
