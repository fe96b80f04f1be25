-- sys.conversation_groups: a group is the set of endpoints that name it
CREATE VIEW sys_conversation_groups AS
SELECT
    lower(substr(hex(conversation_group_id), 1, 8) || '-' || substr(hex(conversation_group_id), 9, 4) || '-' || substr(hex(conversation_group_id), 13, 4)
        || '-' || substr(hex(conversation_group_id), 17, 4) || '-' || substr(hex(conversation_group_id), 21, 12)) AS conversation_group_id,
    min(service_id) AS service_id, max(is_system) AS is_system, max(is_quarantined) AS is_quarantined
FROM dialoq_conversation_endpoint WHERE state <> 'CD' GROUP BY dialoq_conversation_endpoint.conversation_group_id;
