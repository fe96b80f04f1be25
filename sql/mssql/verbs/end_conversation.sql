-- END CONVERSATION, in one of its three forms: plain, WITH ERROR, WITH CLEANUP.
-- Takes: the handle; code and description of WITH ERROR (NULL: plain); whether it is WITH CLEANUP
-- Gives: state, the two letters of the endpoint's state before; notices
-- Errors: 58424, 58426, 58427, 60005
-- Locks: the conversation's group, waiting; the peer's if it has ended already, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.end_conversation
    @conversation_handle uniqueidentifier, @error_code int = NULL, @description nvarchar(max) = NULL, @cleanup bit = 0
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @endpoint_id bigint, @state nvarchar(2), @now datetime2(6), @length int;
    -- <transaction>
    IF @error_code IS NULL AND @description IS NOT NULL OR @error_code < 1
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the error code of END CONVERSATION is ', COALESCE(CAST(@error_code AS nvarchar(11)), N'NULL'),
            N'; it must be above 0, the others belong to the broker'));
        THROW 58424, @text, 1;
    END
    SET @length = dialoq.character_count(@description, 3000);
    IF @length > 3000
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the length of the error description is ', @length, N'; it must be 3000 characters at most'));
        THROW 60005, @text, 1;
    END
    IF @cleanup = 1
        EXEC dialoq.lock_open @conversation_handle, @endpoint_id OUTPUT, @notices OUTPUT;
    ELSE
        EXEC dialoq.lock_unended @conversation_handle, 58427, NULL, @endpoint_id OUTPUT, @notices OUTPUT;
    SELECT @state = e.state FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    SET @now = dialoq.current_time_utc();
    SET @description = COALESCE(@description, N'');
    SET @cleanup = COALESCE(@cleanup, 0);
    EXEC dialoq.end_endpoint @endpoint_id, @error_code, @description, @cleanup, @now, @notices OUTPUT;
    -- </transaction>
    SELECT @state AS state, dialoq.distinct_notices(@notices) AS notices;
END
GO
