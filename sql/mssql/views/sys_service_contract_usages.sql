-- sys.service_contract_usages
IF OBJECT_ID(N'dialoq.sys_service_contract_usages') IS NOT NULL DROP VIEW dialoq.sys_service_contract_usages
GO
CREATE VIEW dialoq.sys_service_contract_usages AS
SELECT service_id, service_contract_id
FROM dialoq.service_contract_usage;
GO
