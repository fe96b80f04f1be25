-- sys.service_contracts
CREATE VIEW sys_service_contracts AS
SELECT name, service_contract_id, owner AS principal_id
FROM dialoq_service_contract WHERE is_dropped = 0;
