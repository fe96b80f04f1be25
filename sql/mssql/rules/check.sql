-- Checks that refuse a verb before it waits for a lock: see docs/locks.md. They read committed rows and wait for no row. With
-- READ_COMMITTED_SNAPSHOT OFF they cannot read a row that another transaction writes; then they do not refuse, and the verb
-- checks again under the lock.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: none

-- The text of 8426.
CREATE FUNCTION dialoq.unknown_handle_text(@conversation_handle uniqueidentifier) RETURNS nvarchar(2048) AS
BEGIN
    RETURN CONCAT(N'conversation handle ', dialoq.id_text(@conversation_handle),
        N' was not found: it was never begun here, or it has ended');
END
GO

-- The text of 8428.
CREATE FUNCTION dialoq.unknown_type_text(@name nvarchar(4000)) RETURNS nvarchar(max) AS
BEGIN
    RETURN CONCAT(N'message type ''', @name, N''' was not found; names are compared byte by byte');
END
GO

-- The id of the message type that a SEND names.
-- Errors: 58428
CREATE PROCEDURE dialoq.find_message_type
    @name nvarchar(4000), @type_id int OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    SET @type_id = NULL;
    SELECT @type_id = t.message_type_id
    FROM dialoq.message_type AS t WHERE t.name = @name AND DATALENGTH(t.name) = DATALENGTH(@name) AND t.is_dropped = 0;
    IF @type_id IS NOT NULL RETURN;
    SET @text = dialoq.unknown_type_text(@name);
    EXEC dialoq.refuse 58428, @text;
END
GO

-- The queue of that name.
-- Errors: 60002
CREATE PROCEDURE dialoq.find_queue
    @queue nvarchar(4000), @queue_id int OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    SET @queue_id = NULL;
    SELECT @queue_id = q.queue_id
    FROM dialoq.service_queue AS q
    WHERE q.folded_name = dialoq.fold_name(@queue) AND DATALENGTH(q.folded_name) = DATALENGTH(@queue);
    IF @queue_id IS NOT NULL RETURN;
    SET @text = dialoq.throw_text(CONCAT(N'queue ''', @queue, N''' was not found'));
    THROW 60002, @text, 1;
END
GO

-- The queue of that name, if it is not disabled, and whether a definition holds receives back from it (definition_wait.sql).
-- Errors: 59617, 60002
CREATE PROCEDURE dialoq.find_receivable
    @queue nvarchar(4000), @queue_id int OUTPUT, @is_held_back bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @name nvarchar(256), @text nvarchar(2048), @held_until datetime2(6);
    EXEC dialoq.find_queue @queue, @queue_id OUTPUT;
    SELECT @name = CASE q.is_receive_enabled WHEN 0 THEN q.name END, @held_until = q.receives_held_until
    FROM dialoq.service_queue AS q WHERE q.queue_id = @queue_id;
    SET @is_held_back = 0;
    IF @held_until IS NOT NULL EXEC dialoq.find_hold @queue_id, @held_until, @is_held_back OUTPUT;
    IF @name IS NULL RETURN;
    SET @text = CONCAT(N'queue ''', @name, N''' is disabled; ALTER QUEUE [', @name, N'] WITH STATUS = ON enables it');
    EXEC dialoq.refuse 59617, @text;
END
GO

-- Refuses a name that ends in a space, because an index of SQL Server treats it as equal to the name without the space.
-- Errors: 60003
CREATE PROCEDURE dialoq.check_name
    @name nvarchar(4000)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    IF RIGHT(@name COLLATE Latin1_General_100_BIN2, 1) <> N' ' RETURN;
    SET @text = dialoq.throw_text(CONCAT(N'the name ''', @name, N''' is empty or ends in a space, and SQL Server compares names without spaces at ',
        N'their end; take another'));
    THROW 60003, @text, 1;
END
GO

-- Checks the body, the trace context and the body fault that a caller of SEND gives; NULL if all are right. A body fault must begin with one of
-- the two codes that checks of bodies give, because it is sent to both sides later.
CREATE PROCEDURE dialoq.check_sent
    @body varbinary(max), @trace nvarchar(max), @body_fault nvarchar(max), @error_number int OUTPUT,
    @error_message nvarchar(2048) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET @error_number = NULL;
    SET @error_message = NULL;
    IF @body_fault IS NOT NULL AND DATALENGTH(@body_fault) > 0
        AND LEFT(@body_fault, 6) COLLATE Latin1_General_100_BIN2 NOT IN (N'-8430|', N'-9615|')
    BEGIN
        SET @error_number = 60005;
        SET @error_message = CONCAT(N'@body_fault is ''', LEFT(@body_fault, 100),
            N'''; it must be empty, or begin with -8430| or -9615|');
    END
    -- The largest max_body_bytes that a client takes.
    ELSE IF DATALENGTH(@body) > 999000000
    BEGIN
        SET @error_number = 58459;
        SET @error_message = CONCAT(N'the message body has ', DATALENGTH(@body), N' bytes; the limit is 999000000');
    END
    -- The limit of the clients. Every process that receives the message would read it. LEN leaves spaces at the end out, and a character of
    -- nvarchar has one byte in Babelfish.
    ELSE IF DATALENGTH(@trace) > 65536 * DATALENGTH(N'a')
    BEGIN
        SET @error_number = 60005;
        SET @error_message = CONCAT(N'the trace context is ', DATALENGTH(@trace) / DATALENGTH(N'a'), N' characters long; it must be at most ',
            N'65536 characters');
    END
END
GO

-- Refuses a client whose definitions are out of date. A version that this transaction has raised itself (break_notification)
-- does not count, because the client cannot read it before the COMMIT.
-- Errors: 60033
CREATE PROCEDURE dialoq.check_catalog_version
    @catalog_version bigint
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @now bigint, @before bigint, @text nvarchar(2048);
    IF @catalog_version IS NULL RETURN;
    SELECT @now = b.catalog_version FROM dialoq.broker AS b WHERE b.singleton = 1;
    IF @now = @catalog_version RETURN;
    SET @before = @now;
    WHILE @before > @catalog_version
        AND APPLOCK_MODE(N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':raised:', @before), N'Transaction') = N'Exclusive'
        SET @before = @before - 1;
    IF @before = @catalog_version RETURN;
    SET @text = dialoq.throw_text(CONCAT(N'the definitions are at version ', @now, N', the client''s at ', @catalog_version,
        N'; read them again'));
    THROW 60033, @text, 1;
END
GO

-- Refuses a verb on a conversation that this side has ended. An initiator whose peer has ended too counts as erased: only
-- the holder of its group removes the row. statement is NULL for END.
-- Errors: 58426, and the one given
CREATE PROCEDURE dialoq.check_not_ended
    @conversation_handle uniqueidentifier, @error_number int, @statement nvarchar(64)
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    DECLARE @state nvarchar(2), @is_initiator bit, @is_peer_known bit, @id uniqueidentifier, @peer_state nvarchar(2);
    DECLARE @text nvarchar(2048), @is_gone bit = 0;
    BEGIN TRY
        SELECT @state = e.state, @is_initiator = e.is_initiator, @is_peer_known = e.is_peer_known, @id = e.conversation_id
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_handle), FORCESEEK)
        WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0;
        IF @state = N'DO' AND @is_initiator = 1
            SELECT @peer_state = p.state
            FROM dialoq.conversation_endpoint AS p WITH (INDEX (conversation_endpoint_peer), FORCESEEK)
            WHERE p.conversation_id = @id AND p.is_initiator = 0;
        IF @state = N'DO' AND @is_initiator = 1
            AND (@peer_state IN (N'DO', N'CD') OR @peer_state IS NULL AND @is_peer_known = 1)
            SET @is_gone = 1;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        RETURN;
    END CATCH
    IF @is_gone = 1
    BEGIN
        SET @text = dialoq.unknown_handle_text(@conversation_handle);
        THROW 58426, @text, 1;
    END
    IF @state IN (N'DO', N'CD')
    BEGIN
        SET @text = CONCAT(N'conversation ', dialoq.id_text(@conversation_handle), N' is ', dialoq.state_name(@state),
            COALESCE(N'; ' + @statement + N' needs one that this side has not ended', N': this side has ended it already'));
        THROW @error_number, @text, 1;
    END
END
GO

-- The service of a group's conversations; NULL if it has none. is_known is 0 if another transaction writes them.
CREATE PROCEDURE dialoq.find_group_service
    @group uniqueidentifier, @service_id int OUTPUT, @is_known bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    SET @service_id = NULL;
    SET @is_known = 1;
    BEGIN TRY
        SELECT TOP (1) @service_id = e.service_id
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        WHERE e.conversation_group_id = @group;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @is_known = 0;
    END CATCH
END
GO

-- Refuses a group that has no conversations, or with a service those of another.
-- Errors: 58436, 58439
CREATE PROCEDURE dialoq.check_group
    @group uniqueidentifier, @service_id int
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @other int, @is_known bit, @text nvarchar(2048);
    EXEC dialoq.find_group_service @group, @other OUTPUT, @is_known OUTPUT;
    IF @is_known = 0 RETURN;
    IF @other IS NULL
    BEGIN
        SET @text = CONCAT(N'conversation group ', dialoq.id_text(@group), N' was not found: it has no conversations here');
        THROW 58436, @text, 1;
    END
    IF @other <> @service_id
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'conversation group ', dialoq.id_text(@group), N' belongs to service ''',
            (SELECT s.name FROM dialoq.service AS s WHERE s.service_id = @other), N''', the conversation to ''',
            (SELECT s.name FROM dialoq.service AS s WHERE s.service_id = @service_id), N'''; MOVE stays within one'));
        THROW 58439, @text, 1;
    END
END
GO
