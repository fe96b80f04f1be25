-- What a verb may be refused for before it waits for a lock: see docs/locks.md. These read what is committed and wait for no
-- row: where READ_COMMITTED_SNAPSHOT is OFF and another transaction writes the row, they say nothing, and the verb waits and
-- is checked under the lock.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: none

-- Throws what a check found.
-- Errors: the one given
IF OBJECT_ID(N'dialoq.refuse') IS NOT NULL DROP PROCEDURE dialoq.refuse
GO
CREATE PROCEDURE dialoq.refuse
    @error_number int, @error_message nvarchar(2048)
AS
BEGIN
    SET NOCOUNT ON;
    SET @error_message = dialoq.throw_text(@error_message);
    THROW @error_number, @error_message, 1;
END
GO

-- The id of the message type that a SEND names.
-- Errors: 58428
IF OBJECT_ID(N'dialoq.find_message_type') IS NOT NULL DROP PROCEDURE dialoq.find_message_type
GO
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
    SET @text = CONCAT(N'message type ''', @name, N''' was not found; names are compared byte by byte');
    EXEC dialoq.refuse 58428, @text;
END
GO

-- Refuses a verb on a conversation that this side has ended. An initiator whose peer has ended too is as good as gone: only
-- the holder of its group removes the row. statement is NULL for END.
-- Errors: 58426, and the one given
IF OBJECT_ID(N'dialoq.check_not_ended') IS NOT NULL DROP PROCEDURE dialoq.check_not_ended
GO
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
        SET @text = CONCAT(N'conversation handle ', dialoq.id_text(@conversation_handle),
            N' was not found: it was never begun here, or it has ended');
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

-- Locks the group of a conversation that this side has not ended, waiting.
-- Errors: 58426, and the one given
IF OBJECT_ID(N'dialoq.lock_unended') IS NOT NULL DROP PROCEDURE dialoq.lock_unended
GO
CREATE PROCEDURE dialoq.lock_unended
    @conversation_handle uniqueidentifier, @error_number int, @statement nvarchar(64), @endpoint_id bigint OUTPUT,
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    EXEC dialoq.lock_handle @conversation_handle, 0, @endpoint_id OUTPUT, @notices OUTPUT;
    IF @endpoint_id IS NULL OR @endpoint_id = -1
    BEGIN
        EXEC dialoq.check_not_ended @conversation_handle, @error_number, @statement;
        EXEC dialoq.lock_open @conversation_handle, @endpoint_id OUTPUT, @notices OUTPUT;
    END
    EXEC dialoq.check_not_ended @conversation_handle, @error_number, @statement;
END
GO

-- Why a SEND is refused whoever holds the conversation's group; NULL if it is not.
IF OBJECT_ID(N'dialoq.check_send_before') IS NOT NULL DROP PROCEDURE dialoq.check_send_before
GO
CREATE PROCEDURE dialoq.check_send_before
    @conversation_handle uniqueidentifier, @message_type nvarchar(256), @error_number int OUTPUT,
    @error_message nvarchar(2048) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    DECLARE @endpoint_id bigint, @state nvarchar(2);
    SET @error_number = NULL;
    BEGIN TRY
        SELECT @endpoint_id = e.endpoint_id
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_handle), FORCESEEK)
        WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0;
        -- Only who holds the group notes in the row what arrived.
        SELECT @state = n.state FROM dialoq.effective_endpoint AS n WHERE n.endpoint_id = @endpoint_id;
        IF @endpoint_id IS NOT NULL
            EXEC dialoq.check_send @endpoint_id, @message_type, @error_number OUTPUT, @error_message OUTPUT, @state;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @error_number = NULL;
    END CATCH
END
GO

-- The service of a group's conversations; NULL if it has none. is_known is 0 if another transaction writes them.
IF OBJECT_ID(N'dialoq.find_group_service') IS NOT NULL DROP PROCEDURE dialoq.find_group_service
GO
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
IF OBJECT_ID(N'dialoq.check_group') IS NOT NULL DROP PROCEDURE dialoq.check_group
GO
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
