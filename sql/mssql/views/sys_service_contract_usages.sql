-- sys.service_contract_usages
CREATE VIEW dialoq.sys_service_contract_usages AS
SELECT service_id, service_contract_id
FROM dialoq.service_contract_usage;
GO
