-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: message_type_id, name, owner, validation, xml_schema_collection, json_schema, is_dropped
SELECT
    message_type_id, name, owner, validation, xml_schema_collection, json_schema, is_dropped
FROM dialoq_message_type ORDER BY message_type_id
