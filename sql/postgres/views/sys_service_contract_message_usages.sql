-- sys.service_contract_message_usages: both flags set is SENT BY ANY
CREATE VIEW dialoq.sys_service_contract_message_usages AS
SELECT u.service_contract_id, t.message_type_id, u.is_sent_by_initiator, u.is_sent_by_target
FROM dialoq.service_contract_message_usage AS u
JOIN dialoq.service_contract AS c ON c.service_contract_id = u.service_contract_id AND NOT c.is_dropped
JOIN dialoq.message_type AS t ON t.name = u.message_type AND NOT t.is_dropped;
