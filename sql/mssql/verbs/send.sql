-- SEND ON CONVERSATION, one conversation.
-- Takes: the handle, the message type (NULL is DEFAULT), the body (empty is none), the trace context, the fault that the
--     caller found in the body (NULL: not checked; '': none; else code and description with | between), the version of the
--     definitions it was checked with (NULL: any), an id for the message (NULL: made here)
-- Gives: message_id, notices
-- Errors: 58426, 58428, 58429, 58431, 58432, 58434, 58459, 59618, 60005, 60026, 60033
-- Locks: the conversation's group, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.send
    @conversation_handle uniqueidentifier, @message_type_name nvarchar(4000) = NULL, @message_body varbinary(max) = NULL,
    @trace nvarchar(max) = NULL, @body_fault nvarchar(max) = NULL, @catalog_version bigint = NULL,
    @message_id uniqueidentifier = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @type_id int, @endpoint_id bigint, @number int;
    -- <transaction>
    EXEC dialoq.check_catalog_version @catalog_version;
    EXEC dialoq.check_sent @message_body, @trace, @body_fault, @number OUTPUT, @text OUTPUT;
    IF @number IS NOT NULL EXEC dialoq.refuse @number, @text;
    SET @message_id = COALESCE(@message_id, NEWID());
    EXEC dialoq.lock_handle @conversation_handle, 0, @endpoint_id OUTPUT, @notices OUTPUT;
    IF @endpoint_id IS NULL EXEC dialoq.lock_open @conversation_handle, @endpoint_id OUTPUT, @notices OUTPUT;
    SET @message_type_name = COALESCE(@message_type_name, N'DEFAULT');
    EXEC dialoq.find_message_type @message_type_name, @type_id OUTPUT;
    IF @endpoint_id = -1
    BEGIN
        EXEC dialoq.check_send_before @conversation_handle, @message_type_name, @number OUTPUT, @text OUTPUT;
        IF @number IS NOT NULL EXEC dialoq.refuse @number, @text;
        EXEC dialoq.lock_open @conversation_handle, @endpoint_id OUTPUT, @notices OUTPUT;
    END
    EXEC dialoq.check_send @endpoint_id, @message_type_name, @number OUTPUT, @text OUTPUT;
    IF @number IS NOT NULL EXEC dialoq.refuse @number, @text;
    IF @body_fault IS NULL EXEC dialoq.find_body_fault @type_id, @message_body, @body_fault OUTPUT;
    EXEC dialoq.send_from @endpoint_id, @type_id, @message_body, @trace, @body_fault, @message_id, @notices OUTPUT;
    -- </transaction>
    SELECT @message_id AS message_id, dialoq.distinct_notices(@notices) AS notices;
END
GO
