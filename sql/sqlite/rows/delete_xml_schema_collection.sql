-- Removes an XML schema collection.
-- Takes: ?1 xml_collection_id
-- Gives: nothing
DELETE FROM dialoq_xml_schema_collection WHERE xml_collection_id = ?1
