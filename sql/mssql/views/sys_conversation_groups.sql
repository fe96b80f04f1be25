-- sys.conversation_groups: a group is the set of endpoints that name it
CREATE VIEW dialoq.sys_conversation_groups AS
SELECT
    conversation_group_id, min(service_id) AS service_id, CAST(max(CAST(is_system AS int)) AS bit) AS is_system,
    CAST(max(CAST(is_quarantined AS int)) AS bit) AS is_quarantined
FROM dialoq.conversation_endpoint WHERE state <> N'CD' GROUP BY conversation_group_id;
GO
