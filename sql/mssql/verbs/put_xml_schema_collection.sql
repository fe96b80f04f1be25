-- Writes an XML schema collection, new or not, or removes one.
-- Takes: the columns of xml_schema_collection; or the xml_collection_id
-- Gives: nothing
-- Errors: none of its own
-- Locks: the row
-- Called by: dialoq_admin (put_xml_schema_collection, delete_xml_schema_collection)
CREATE PROCEDURE dialoq.put_xml_schema_collection
    @xml_collection_id int, @name nvarchar(256), @schemas nvarchar(max)
AS
BEGIN
    -- <definition>
    UPDATE dialoq.xml_schema_collection SET
        name = @name, schemas = @schemas
    WHERE xml_collection_id = @xml_collection_id;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.xml_schema_collection (
            xml_collection_id, name, schemas
        ) VALUES (
            @xml_collection_id, @name, @schemas
        );
    -- </definition>
END
GO
CREATE PROCEDURE dialoq.delete_xml_schema_collection
    @xml_collection_id int
AS
BEGIN
    -- <definition>
    DELETE FROM dialoq.xml_schema_collection WHERE xml_collection_id = @xml_collection_id;
    -- </definition>
END
GO
