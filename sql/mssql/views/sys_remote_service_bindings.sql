-- sys.remote_service_bindings: none, delivery inside one store is never encrypted
CREATE VIEW dialoq.sys_remote_service_bindings AS
SELECT
    CAST(NULL AS nvarchar(256)) AS name, CAST(NULL AS int) AS remote_service_binding_id, CAST(NULL AS int) AS principal_id,
    CAST(NULL AS nvarchar(256)) AS remote_service_name, CAST(NULL AS int) AS service_contract_id, CAST(NULL AS int) AS remote_principal_id,
    CAST(NULL AS bit) AS is_anonymous_on
WHERE 1 = 0;
GO
