-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: xml_collection_id, name, schemas
SELECT
    xml_collection_id, name, schemas
FROM dialoq_xml_schema_collection ORDER BY xml_collection_id
