-- Message types, dropped ones too.
-- Takes: nothing
-- Gives: message_type_id, name, owner, validation, xml_schema_collection, json_schema, is_dropped
SELECT
    message_type_id, name, owner, validation, xml_schema_collection, json_schema, is_dropped
FROM dialoq.read_message_types ORDER BY message_type_id
