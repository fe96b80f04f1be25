-- sys.conversation_priorities: NULL is ANY
CREATE VIEW dialoq.sys_conversation_priorities AS
SELECT priority_id, name, service_contract_id, local_service_id, remote_service_name, priority
FROM dialoq.conversation_priority;
GO
