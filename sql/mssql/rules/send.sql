-- SEND: its checks, and the message itself.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: none

-- The name of a contract, '' if there is none.
CREATE FUNCTION dialoq.contract_name(@service_contract_id int) RETURNS nvarchar(256) AS
BEGIN
    RETURN COALESCE((
        SELECT c.name FROM dialoq.service_contract AS c WHERE c.service_contract_id = @service_contract_id), N'');
END
GO

-- The fault of a body for its type, as far as the server can check it: '' or the code and the description.
-- Errors: 60026 for a type that has a schema
CREATE PROCEDURE dialoq.find_body_fault
    @message_type_id int, @body varbinary(max), @fault nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @name nvarchar(256), @validation nvarchar(1), @text nvarchar(2048), @content nvarchar(max), @is_good bit = 1;
    DECLARE @mark nvarchar(36) = CAST(NEWID() AS nvarchar(36));
    SET @fault = N'';
    SELECT @name = t.name, @validation = t.validation
    FROM dialoq.message_type AS t WHERE t.message_type_id = @message_type_id;
    IF @validation = N'N' OR @body IS NULL OR DATALENGTH(@body) = 0 RETURN;
    IF @validation = N'E'
    BEGIN
        SET @fault = CONCAT(N'-8430|the body of a message of type ''', @name, N''' must be empty: ', DATALENGTH(@body),
            N' bytes were found; the type allows no body');
        RETURN;
    END
    IF @validation IN (N'V', N'S')
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'messages of type ''', @name,
            N''' are checked against a schema, which SQL alone cannot do; send them with a client of Dialoq'));
        THROW 60026, @text, 1;
    END
    IF @validation = N'J'
    BEGIN
        -- A variable is read in the code page of the database, a column in that of its collation. In one of the code pages of two
        -- bytes to a character, a byte of UTF-8 may take the backslash or quotation mark after it along.
        DECLARE @read TABLE (body varchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL);
        INSERT INTO @read (body) VALUES (@body);
        SELECT @content = LTRIM(RTRIM(CAST(r.body AS nvarchar(max)))) FROM @read AS r;
        -- ISJSON accepts objects and arrays only. So any other text is checked as the first element of an array, whose second
        -- element is a random one, which the body cannot contain.
        IF LEFT(@content, 1) IN (N'{', N'[')
            SET @is_good = ISJSON(@content);
        ELSE
        BEGIN
            SET @content = CONCAT(N'[', @content, N',"', @mark, N'"]');
            SET @is_good = ISJSON(@content);
            -- JSON_VALUE fails for what is no JSON.
            IF @is_good = 1
                SET @is_good = CASE WHEN JSON_VALUE(@content, N'$[1]') = @mark THEN 1 ELSE 0 END;
        END
        IF @is_good = 0
            SET @fault = CONCAT(N'-8430|the body of a message of type ''', @name, N''' is not JSON: the server does not read it');
        RETURN;
    END
    -- Dynamic, so that a server without the type xml only fails when it is asked.
    IF DATALENGTH(CAST(N'a' AS varbinary(max))) = 2
        EXEC sp_executesql N'SET @is_good = CASE WHEN TRY_CAST(@body AS xml) IS NULL THEN 0 ELSE 1 END',
            N'@body varbinary(max), @is_good bit OUTPUT', @body = @body, @is_good = @is_good OUTPUT;
    ELSE
    BEGIN
        SET @content = CAST(CAST(@body AS varchar(max)) AS nvarchar(max));
        EXEC sp_executesql N'SET @is_good = CASE WHEN TRY_CAST(@body AS xml) IS NULL THEN 0 ELSE 1 END',
            N'@body nvarchar(max), @is_good bit OUTPUT', @body = @content, @is_good = @is_good OUTPUT;
    END
    IF @is_good = 0
        SET @fault = CONCAT(N'-9615|the body of a message of type ''', @name,
            N''' is not well-formed XML: the server does not read it');
END
GO

-- The reason why an endpoint may not send that message; NULL if it may. Its group is locked, unless `@noted_state` gives the
-- state to check.
CREATE PROCEDURE dialoq.check_send
    @endpoint_id bigint, @message_type nvarchar(256), @error_number int OUTPUT, @error_message nvarchar(2048) OUTPUT,
    @noted_state nvarchar(2) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @handle uniqueidentifier, @state nvarchar(2), @is_initiator bit, @contract_id int, @queue nvarchar(256);
    DECLARE @is_enqueue_enabled bit, @is_retention_enabled bit, @by_initiator bit, @by_target bit;
    SET @error_number = NULL;
    SET @error_message = NULL;
    SELECT @handle = e.conversation_handle, @state = e.state, @is_initiator = e.is_initiator,
        @contract_id = e.service_contract_id, @queue = q.name, @is_enqueue_enabled = q.is_enqueue_enabled,
        @is_retention_enabled = q.is_retention_enabled, @by_initiator = u.is_sent_by_initiator,
        @by_target = u.is_sent_by_target
    FROM dialoq.conversation_endpoint AS e
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    LEFT JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    LEFT JOIN dialoq.service_contract_message_usage AS u
        ON u.service_contract_id = e.service_contract_id AND u.message_type = @message_type
            AND DATALENGTH(u.message_type) = DATALENGTH(@message_type)
    WHERE e.endpoint_id = @endpoint_id;
    IF @handle IS NULL
    BEGIN
        -- Its service was dropped while its first message was under way; the recheck erases it.
        SELECT @handle = e.conversation_handle FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
        SET @error_number = 58426;
        SET @error_message = dialoq.unknown_handle_text(@handle);
        RETURN;
    END
    SET @state = COALESCE(@noted_state, @state);
    IF @state IS NULL OR @state NOT IN (N'SO', N'CO')
    BEGIN
        SET @error_number = 58429;
        SET @error_message = CONCAT(N'conversation ', dialoq.id_text(@handle), N' is ', dialoq.state_name(@state),
            N'; SEND needs STARTED_OUTBOUND or CONVERSING');
    END
    ELSE IF @by_initiator IS NULL
    BEGIN
        SET @error_number = 58431;
        SET @error_message = CONCAT(N'message type ''', @message_type, N''' is not in contract ''',
            dialoq.contract_name(@contract_id), N'''');
    END
    ELSE IF @is_initiator = 1 AND @by_initiator = 0
    BEGIN
        SET @error_number = 58432;
        SET @error_message = CONCAT(N'contract ''', dialoq.contract_name(@contract_id),
            N''' lets only the target send ''', @message_type, N'''; this side is the initiator');
    END
    ELSE IF @is_initiator = 0 AND @by_target = 0
    BEGIN
        SET @error_number = 58434;
        SET @error_message = CONCAT(N'contract ''', dialoq.contract_name(@contract_id),
            N''' lets only the initiator send ''', @message_type, N'''; this side is the target');
    END
    ELSE IF @is_enqueue_enabled = 0 AND @is_retention_enabled = 1
    BEGIN
        SET @error_number = 59618;
        SET @error_message = CONCAT(N'queue ''', @queue, N''' of the sending service is disabled and retains messages, ',
            N'so the copy cannot be kept; ALTER QUEUE [', @queue, N'] WITH STATUS = ON enables it');
    END
END
GO

-- The reason why a SEND is refused, no matter which transaction holds the conversation's group; NULL if it is not.
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
        -- Only the holder of the group writes the state into the row, so the effective state is read.
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

-- The same for many messages: the first that is refused refuses all.
-- Errors: 58426, 58428, 58429, 58431, 58432, 58434, 58459, 59618, 60005
CREATE PROCEDURE dialoq.check_each
    @messages dialoq.send_batch_rows READONLY
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @item int, @next int, @place int = 0, @count int, @handle uniqueidentifier, @type_name nvarchar(4000);
    DECLARE @body varbinary(max), @trace nvarchar(max), @fault nvarchar(max), @number int, @text nvarchar(2048), @endpoint_id bigint;
    SELECT @count = COUNT(*) FROM @messages AS m;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = m.item FROM @messages AS m WHERE @item IS NULL OR m.item > @item ORDER BY m.item;
        IF @next IS NULL BREAK;
        SET @item = @next;
        SET @place = @place + 1;
        SELECT @handle = m.conversation_handle, @type_name = COALESCE(m.message_type_name, N'DEFAULT'),
            @body = m.message_body, @trace = m.trace, @fault = m.body_fault
        FROM @messages AS m WHERE m.item = @item;
        EXEC dialoq.check_sent @body, @trace, @fault, @number OUTPUT, @text OUTPUT;
        IF @number IS NULL
        BEGIN
            EXEC dialoq.find_handle @handle, @endpoint_id OUTPUT;
            IF @endpoint_id IS NULL
            BEGIN
                SET @number = 58426;
                SET @text = dialoq.unknown_handle_text(@handle);
            END
            ELSE IF NOT EXISTS (
                SELECT 1 FROM dialoq.message_type AS t
                WHERE t.name = @type_name AND DATALENGTH(t.name) = DATALENGTH(@type_name) AND t.is_dropped = 0)
            BEGIN
                SET @number = 58428;
                SET @text = dialoq.unknown_type_text(@type_name);
            END
            ELSE
                EXEC dialoq.check_send_before @handle, @type_name, @number OUTPUT, @text OUTPUT;
        END
        IF @number IS NOT NULL
        BEGIN
            SET @text = LEFT(CONCAT(N'message ', @place, N' of ', @count, N': ', @text), 2048);
            EXEC dialoq.refuse @number, @text;
        END
    END
END
GO

-- Sends a message of an endpoint whose group is locked, after check_send.
CREATE PROCEDURE dialoq.send_from
    @endpoint_id bigint, @message_type_id int, @body varbinary(max), @trace nvarchar(max), @body_fault nvarchar(max),
    @message_id uniqueidentifier, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @now datetime2(6) = dialoq.current_time_utc(), @sequence bigint, @retains bit;
    IF DATALENGTH(@body) = 0 SET @body = NULL;
    SELECT @sequence = e.send_sequence, @retains = q.is_retention_enabled
    FROM dialoq.conversation_endpoint AS e
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    LEFT JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    WHERE e.endpoint_id = @endpoint_id;
    UPDATE dialoq.conversation_endpoint SET state = N'CO', send_sequence = @sequence + 1 WHERE endpoint_id = @endpoint_id;
    IF @retains = 1
        EXEC dialoq.retain_sent @endpoint_id, @sequence, @message_type_id, @message_id, @now, @body, @trace;
    EXEC dialoq.dispatch @endpoint_id, @sequence, @message_type_id, @message_id, @body, @trace, 0, 0, @body_fault, @now,
        @notices OUTPUT;
END
GO
