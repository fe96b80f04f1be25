-- sys.service_contracts
IF OBJECT_ID(N'dialoq.sys_service_contracts') IS NOT NULL DROP VIEW dialoq.sys_service_contracts
GO
CREATE VIEW dialoq.sys_service_contracts AS
SELECT name, service_contract_id, owner AS principal_id
FROM dialoq.service_contract WHERE is_dropped = 0;
GO
