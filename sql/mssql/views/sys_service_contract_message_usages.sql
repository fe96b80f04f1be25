-- sys.service_contract_message_usages: both flags set is SENT BY ANY
CREATE VIEW dialoq.sys_service_contract_message_usages AS
SELECT u.service_contract_id, t.message_type_id, u.is_sent_by_initiator, u.is_sent_by_target
FROM dialoq.service_contract_message_usage AS u
JOIN dialoq.service_contract AS c ON c.service_contract_id = u.service_contract_id AND c.is_dropped = 0
JOIN dialoq.message_type AS t ON t.name = u.message_type AND t.is_dropped = 0;
GO
