-- sys.service_contracts
CREATE VIEW dialoq.sys_service_contracts AS
SELECT name, service_contract_id, owner AS principal_id
FROM dialoq.service_contract WHERE is_dropped = 0;
GO
