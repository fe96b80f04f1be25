-- XML schema collections.
-- Takes: nothing
-- Gives: xml_collection_id, name, schemas
SELECT
    xml_collection_id, name, schemas
FROM dialoq.read_xml_schema_collections ORDER BY xml_collection_id
