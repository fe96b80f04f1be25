-- Writes a message type, new or not. A dropped one stays, marked, for the rows that name it. What waits to be delivered
-- is judged again, because bodies are judged when they arrive; but against a schema only clients of Dialoq can judge.
-- Takes: the columns of message_type
-- Gives: nothing
-- Errors: 60003
-- Locks: the row, and the messages of the type in the transmission queue
-- Called by: dialoq_admin
CREATE PROCEDURE dialoq.put_message_type
    @message_type_id int, @name nvarchar(256), @owner nvarchar(256), @validation nvarchar(1),
    @xml_schema_collection nvarchar(256), @json_schema nvarchar(max), @is_dropped bit
AS
BEGIN
    -- <definition>
    EXEC dialoq.check_name @name;
    DECLARE @before nvarchar(1), @id bigint = -1, @next bigint, @body varbinary(max), @fault nvarchar(max);
    SELECT @before = m.validation FROM dialoq.message_type AS m WHERE m.message_type_id = @message_type_id;
    UPDATE dialoq.message_type SET
        name = @name, owner = @owner, validation = @validation, xml_schema_collection = @xml_schema_collection,
        json_schema = @json_schema, is_dropped = @is_dropped
    WHERE message_type_id = @message_type_id;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.message_type (
            message_type_id, name, owner, validation, xml_schema_collection, json_schema, is_dropped
        ) VALUES (
            @message_type_id, @name, @owner, @validation, @xml_schema_collection, @json_schema, @is_dropped
        );
    WHILE @before <> @validation AND @validation NOT IN (N'V', N'S')
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = t.transmission_id, @body = t.body
        FROM dialoq.transmission AS t
        WHERE t.message_type_id = @message_type_id AND t.transmission_id > @id ORDER BY t.transmission_id;
        IF @next IS NULL BREAK;
        SET @id = @next;
        EXEC dialoq.find_body_fault @message_type_id, @body, @fault OUTPUT;
        UPDATE dialoq.transmission SET body_fault = @fault WHERE transmission_id = @id;
    END
    -- </definition>
END
GO
