-- Writes a message type, new or not. A dropped one stays, marked, for the rows that name it.
-- Takes: the columns of message_type
-- Gives: nothing
-- Errors: none of its own
-- Locks: the row
IF OBJECT_ID(N'dialoq.put_message_type') IS NOT NULL DROP PROCEDURE dialoq.put_message_type
GO
CREATE PROCEDURE dialoq.put_message_type
    @message_type_id int, @name nvarchar(256), @owner nvarchar(256), @validation nvarchar(1),
    @xml_schema_collection nvarchar(256), @json_schema nvarchar(max), @is_dropped bit
AS
BEGIN
    SET NOCOUNT ON;
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
END
GO
