-- SEND ON CONVERSATION ( h1, h2, ... ): one message on many conversations, on all of them or none.
-- Takes: send_many_rows: the handles; then as send
-- Gives: notices
-- Errors: 58418, 58426, 58428, 58429, 58431, 58432, 58434, 58435, 58451, 58459, 59618, 60005, 60026, 60033
-- Locks: the groups of the conversations in one order for all, waiting
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.send_many
    @conversation_handles dialoq.send_many_rows READONLY, @message_type_name nvarchar(4000) = NULL,
    @message_body varbinary(max) = NULL, @trace nvarchar(max) = NULL, @body_fault nvarchar(max) = NULL,
    @catalog_version bigint = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @type_id int, @endpoint_id bigint, @number int, @count int, @item int;
    DECLARE @handle uniqueidentifier, @message_id uniqueidentifier, @one uniqueidentifier, @error_number int;
    DECLARE @order TABLE (
        place int IDENTITY(1, 1) PRIMARY KEY, item int NOT NULL, conversation_handle uniqueidentifier NOT NULL,
        endpoint_id bigint NULL
    );
    -- <transaction>
    EXEC dialoq.check_catalog_version @catalog_version;
    EXEC dialoq.check_sent @message_body, @trace, @body_fault, @number OUTPUT, @text OUTPUT;
    IF @number IS NOT NULL EXEC dialoq.refuse @number, @text;
    SELECT @count = COUNT(*) FROM @conversation_handles;
    IF @count = 0 THROW 58418, N'SEND names no conversation; it needs at least one handle', 1;
    IF EXISTS (SELECT 1 FROM @conversation_handles AS c WHERE c.conversation_handle IS NULL)
        THROW 58418, N'a handle in the list of SEND is NULL; each row must name a conversation', 1;
    SELECT TOP (1) @item = c.item, @handle = c.conversation_handle
    FROM @conversation_handles AS c
    WHERE NOT EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_handle), FORCESEEK)
        WHERE e.conversation_handle = c.conversation_handle AND e.is_system = 0)
    ORDER BY c.item;
    IF @item IS NOT NULL AND @count > 1
    BEGIN
        SET @text = CONCAT(N'handle ', CAST(@item AS bigint) + 1, N' of ', @count, N' in the list, ', dialoq.id_text(@handle), N', was not found');
        EXEC dialoq.refuse 58435, @text;
    END
    SET @handle = NULL;
    SELECT TOP (1) @handle = c.conversation_handle
    FROM @conversation_handles AS c GROUP BY c.conversation_handle HAVING COUNT(*) > 1;
    IF @handle IS NOT NULL
    BEGIN
        SET @text = CONCAT(N'handle ', dialoq.id_text(@handle), N' is listed twice; each conversation may be named once');
        EXEC dialoq.refuse 58451, @text;
    END
    SET @message_type_name = COALESCE(@message_type_name, N'DEFAULT');
    EXEC dialoq.find_message_type @message_type_name, @type_id OUTPUT;
    INSERT INTO @order (item, conversation_handle)
    SELECT c.item, c.conversation_handle
    FROM @conversation_handles AS c
    LEFT JOIN dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_handle), FORCESEEK)
        ON e.conversation_handle = c.conversation_handle
    ORDER BY e.conversation_group_id, c.item;
    SET @number = 0;
    WHILE @number < @count
    BEGIN
        SET @number = @number + 1;
        SELECT @handle = o.conversation_handle FROM @order AS o WHERE o.place = @number;
        EXEC dialoq.lock_handle @handle, 0, @endpoint_id OUTPUT, @notices OUTPUT;
        IF @endpoint_id = -1
        BEGIN
            SET @item = NULL;
            WHILE 1 = 1
            BEGIN
                SET @one = NULL;
                SELECT TOP (1) @one = o.conversation_handle, @item = o.item
                FROM @order AS o WHERE @item IS NULL OR o.item > @item ORDER BY o.item;
                IF @one IS NULL BREAK;
                EXEC dialoq.check_send_before @one, @message_type_name, @error_number OUTPUT, @text OUTPUT;
                IF @error_number IS NOT NULL EXEC dialoq.refuse @error_number, @text;
            END
        END
        IF @endpoint_id IS NULL OR @endpoint_id = -1
            EXEC dialoq.lock_handle @handle, 1, @endpoint_id OUTPUT, @notices OUTPUT;
        IF @endpoint_id IS NULL AND @count > 1
        BEGIN
            SET @text = CONCAT(N'a handle of the list, ', dialoq.id_text(@handle), N', was not found');
            THROW 58435, @text, 1;
        END
        IF @endpoint_id IS NULL EXEC dialoq.lock_open @handle, @endpoint_id OUTPUT, @notices OUTPUT;
        UPDATE @order SET endpoint_id = @endpoint_id WHERE place = @number;
    END
    SET @item = NULL;
    WHILE 1 = 1
    BEGIN
        SET @endpoint_id = NULL;
        SELECT TOP (1) @endpoint_id = o.endpoint_id, @item = o.item
        FROM @order AS o WHERE @item IS NULL OR o.item > @item ORDER BY o.item;
        IF @endpoint_id IS NULL BREAK;
        EXEC dialoq.check_send @endpoint_id, @message_type_name, @number OUTPUT, @text OUTPUT;
        IF @number IS NOT NULL EXEC dialoq.refuse @number, @text;
    END
    IF @body_fault IS NULL EXEC dialoq.find_body_fault @type_id, @message_body, @body_fault OUTPUT;
    SET @item = NULL;
    WHILE 1 = 1
    BEGIN
        SET @endpoint_id = NULL;
        SELECT TOP (1) @endpoint_id = o.endpoint_id, @item = o.item
        FROM @order AS o WHERE @item IS NULL OR o.item > @item ORDER BY o.item;
        IF @endpoint_id IS NULL BREAK;
        SET @message_id = NEWID();
        EXEC dialoq.send_from @endpoint_id, @type_id, @message_body, @trace, @body_fault, @message_id, @notices OUTPUT;
    END
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
