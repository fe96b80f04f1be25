-- sys.service_contract_usages
CREATE VIEW sys_service_contract_usages AS
SELECT service_id, service_contract_id
FROM dialoq_service_contract_usage;
