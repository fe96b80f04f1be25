-- sys.remote_service_bindings: none, delivery inside one store is never encrypted
CREATE VIEW sys_remote_service_bindings AS
SELECT
    NULL AS name, NULL AS remote_service_binding_id, NULL AS principal_id, NULL AS remote_service_name,
    NULL AS service_contract_id, NULL AS remote_principal_id, NULL AS is_anonymous_on
WHERE 0;
