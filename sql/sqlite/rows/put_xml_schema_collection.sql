-- Writes an XML schema collection, new or not.
-- Takes: ?1 xml_collection_id, ?2 name, ?3 schemas
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_xml_schema_collection (
    xml_collection_id, name, schemas
) VALUES (?1, ?2, ?3)
