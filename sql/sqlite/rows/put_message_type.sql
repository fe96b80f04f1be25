-- Writes a message type, new or not.
-- Takes: ?1 message_type_id, ?2 name, ?3 owner, ?4 validation, ?5 xml_schema_collection, ?6 json_schema, ?7 is_dropped
-- Gives: nothing
INSERT OR REPLACE INTO dialoq_message_type (
    message_type_id, name, owner, validation, xml_schema_collection, json_schema, is_dropped
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
