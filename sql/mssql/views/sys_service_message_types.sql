-- sys.service_message_types, and the JSON schema, ours
CREATE VIEW dialoq.sys_service_message_types AS
SELECT
    t.name, t.message_type_id, t.owner AS principal_id,
    CASE t.validation WHEN N'V' THEN N'X' WHEN N'S' THEN N'J' ELSE t.validation END AS validation,
    CASE t.validation WHEN N'E' THEN N'EMPTY' WHEN N'N' THEN N'NONE' WHEN N'J' THEN N'JSON' WHEN N'S' THEN N'JSON' ELSE N'XML' END
        AS validation_desc,
    (SELECT TOP (1) x.xml_collection_id FROM dialoq.xml_schema_collection AS x
     WHERE dialoq.fold_name(x.name) = dialoq.fold_name(t.xml_schema_collection) ORDER BY x.xml_collection_id) AS xml_collection_id,
    t.json_schema
FROM dialoq.message_type AS t WHERE t.is_dropped = 0;
GO
