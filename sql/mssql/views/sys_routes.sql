-- sys.routes: the one route of a store that delivers to itself
CREATE VIEW dialoq.sys_routes AS
SELECT
    N'AutoCreatedLocal' AS name, 65536 AS route_id, 1 AS principal_id, CAST(NULL AS nvarchar(256)) AS remote_service_name,
    CAST(NULL AS nvarchar(256)) AS broker_instance, CAST(NULL AS datetime2(6)) AS lifetime, N'LOCAL' AS address, CAST(NULL AS nvarchar(256)) AS mirror_address;
GO
