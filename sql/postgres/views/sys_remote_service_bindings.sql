-- sys.remote_service_bindings: none, delivery inside one store is never encrypted
CREATE VIEW dialoq.sys_remote_service_bindings AS
SELECT
    NULL::text AS name, NULL::integer AS remote_service_binding_id, NULL::integer AS principal_id,
    NULL::text AS remote_service_name, NULL::integer AS service_contract_id, NULL::integer AS remote_principal_id,
    NULL::boolean AS is_anonymous_on
WHERE false;
