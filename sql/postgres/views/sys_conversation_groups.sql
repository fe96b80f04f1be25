-- sys.conversation_groups: a group is the set of endpoints that name it
CREATE VIEW dialoq.sys_conversation_groups AS
SELECT
    conversation_group_id, min(service_id) AS service_id, bool_or(is_system) AS is_system,
    bool_or(is_quarantined) AS is_quarantined
FROM dialoq.conversation_endpoint WHERE state <> 'CD' GROUP BY conversation_group_id;
