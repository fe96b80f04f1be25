-- Many messages, each with a conversation, type and body of its own: all of them are sent or none. Messages of one
-- conversation keep their order, which is that of item.
-- Takes: send_batch_rows: for each its handle, message type (NULL is DEFAULT), body, trace context, fault as send takes it,
--     and message id (NULL: made here); the version of the definitions the bodies were checked with (NULL: any). At most
--     10000 messages with 256 MiB of bodies.
-- Gives: notices
-- Errors: 58426, 58428, 58429, 58431, 58432, 58434, 58459, 59618, 60005, 60026, 60033; the text begins with the place of the
--     message
-- Locks: the groups of the conversations in one order for all, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.send_each
    @messages dialoq.send_batch_rows READONLY, @catalog_version bigint = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @type_id int, @endpoint_id bigint, @number int, @count int;
    DECLARE @place int, @item int, @rank int, @bytes bigint, @handle uniqueidentifier, @type_name nvarchar(4000);
    DECLARE @body varbinary(max), @trace nvarchar(max), @fault nvarchar(max), @message_id uniqueidentifier;
    DECLARE @has_waited bit = 0, @has_fault bit = 0;
    DECLARE @order TABLE (
        place int NOT NULL PRIMARY KEY, item int NOT NULL, conversation_handle uniqueidentifier NULL, lock_rank int NOT NULL,
        endpoint_id bigint NULL, message_type_id int NULL, body_fault nvarchar(max) NULL
    );
    -- <transaction>
    EXEC dialoq.check_catalog_version @catalog_version;
    SELECT @count = COUNT(*), @bytes = SUM(CAST(DATALENGTH(m.message_body) AS bigint)) FROM @messages AS m;
    IF @count > 10000
    BEGIN
        SET @text = CONCAT(N'the list of send_each is ', @count, N' messages; it must be at most 10000 messages');
        THROW 60005, @text, 1;
    END
    IF @bytes > 268435456
    BEGIN
        SET @text = CONCAT(N'the list of send_each is ', @bytes, N' bytes of bodies; it must be at most 268435456 bytes');
        THROW 60005, @text, 1;
    END
    INSERT INTO @order (place, item, conversation_handle, lock_rank)
    SELECT ROW_NUMBER() OVER (ORDER BY m.item), m.item, m.conversation_handle,
        ROW_NUMBER() OVER (ORDER BY e.conversation_group_id, m.item)
    FROM @messages AS m
    LEFT JOIN dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_handle), FORCESEEK)
        ON e.conversation_handle = m.conversation_handle AND e.is_system = 0;
    UPDATE o SET message_type_id = t.message_type_id
    FROM @order AS o
    JOIN @messages AS m ON m.item = o.item
    JOIN dialoq.message_type AS t
        ON t.name = COALESCE(m.message_type_name, N'DEFAULT')
            AND DATALENGTH(t.name) = DATALENGTH(COALESCE(m.message_type_name, N'DEFAULT'))
    WHERE t.is_dropped = 0;
    SET @rank = 0;
    WHILE @rank < @count
    BEGIN
        SET @rank = @rank + 1;
        SELECT @handle = o.conversation_handle, @place = o.place FROM @order AS o WHERE o.lock_rank = @rank;
        EXEC dialoq.lock_handle @handle, 0, @endpoint_id OUTPUT, @notices OUTPUT;
        IF @endpoint_id = -1 AND @has_waited = 0
        BEGIN
            -- A SEND that no holder of the groups can make valid does not wait for them.
            EXEC dialoq.check_each @messages;
            SET @has_waited = 1;
        END
        IF @endpoint_id = -1
            EXEC dialoq.lock_handle @handle, 1, @endpoint_id OUTPUT, @notices OUTPUT;
        UPDATE @order SET endpoint_id = @endpoint_id WHERE place = @place;
    END
    -- All are checked before the first is sent: a refusal of a procedure keeps what it has written, if the caller has a
    -- transaction of its own.
    SET @place = 0;
    WHILE @place < @count
    BEGIN
        SET @place = @place + 1;
        SELECT @endpoint_id = o.endpoint_id, @type_id = o.message_type_id, @handle = o.conversation_handle,
            @type_name = COALESCE(m.message_type_name, N'DEFAULT'), @body = m.message_body, @trace = m.trace, @fault = m.body_fault
        FROM @order AS o JOIN @messages AS m ON m.item = o.item WHERE o.place = @place;
        EXEC dialoq.check_sent @body, @trace, @fault, @number OUTPUT, @text OUTPUT;
        IF @number IS NULL AND @endpoint_id IS NULL
        BEGIN
            SET @number = 58426;
            SET @text = dialoq.unknown_handle_text(@handle);
        END
        ELSE IF @number IS NULL AND @type_id IS NULL
        BEGIN
            SET @number = 58428;
            SET @text = dialoq.unknown_type_text(@type_name);
        END
        ELSE IF @number IS NULL
            EXEC dialoq.check_send @endpoint_id, @type_name, @number OUTPUT, @text OUTPUT;
        IF @number IS NOT NULL
        BEGIN
            SET @text = LEFT(CONCAT(N'message ', @place, N' of ', @count, N': ', @text), 2048);
            EXEC dialoq.refuse @number, @text;
        END
        IF @fault IS NULL EXEC dialoq.find_body_fault @type_id, @body, @fault OUTPUT;
        IF DATALENGTH(@fault) > 0 SET @has_fault = 1;
        UPDATE @order SET body_fault = @fault WHERE place = @place;
    END
    SET @place = 0;
    WHILE @place < @count
    BEGIN
        SET @place = @place + 1;
        SELECT @endpoint_id = o.endpoint_id, @type_id = o.message_type_id, @fault = o.body_fault, @body = m.message_body,
            @type_name = COALESCE(m.message_type_name, N'DEFAULT'), @trace = m.trace, @message_id = COALESCE(m.message_id, NEWID())
        FROM @order AS o JOIN @messages AS m ON m.item = o.item WHERE o.place = @place;
        -- An earlier body may have broken the conversation: then this message is dropped, as one that is under way.
        SET @number = NULL;
        IF @has_fault = 1
            EXEC dialoq.check_send @endpoint_id, @type_name, @number OUTPUT, @text OUTPUT;
        IF @number IS NOT NULL CONTINUE;
        EXEC dialoq.send_from @endpoint_id, @type_id, @body, @trace, @fault, @message_id, @notices OUTPUT;
        IF LEN(@notices) > 3000 SET @notices = dialoq.distinct_notices(@notices);
    END
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
