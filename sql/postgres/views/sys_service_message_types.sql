-- sys.service_message_types, and the JSON schema, ours
CREATE VIEW dialoq.sys_service_message_types AS
SELECT
    t.name, t.message_type_id, t.owner AS principal_id,
    CASE t.validation WHEN 'V' THEN 'X' WHEN 'S' THEN 'J' ELSE t.validation END AS validation,
    CASE t.validation WHEN 'E' THEN 'EMPTY' WHEN 'N' THEN 'NONE' WHEN 'J' THEN 'JSON' WHEN 'S' THEN 'JSON' ELSE 'XML' END
        AS validation_desc,
    (SELECT x.xml_collection_id FROM dialoq.xml_schema_collection AS x
     WHERE lower(x.name COLLATE "C") = lower(t.xml_schema_collection COLLATE "C") ORDER BY x.xml_collection_id LIMIT 1) AS xml_collection_id,
    t.json_schema
FROM dialoq.message_type AS t WHERE NOT t.is_dropped;
