-- sys.routes: the one route of a store that delivers to itself
CREATE VIEW sys_routes AS
SELECT
    'AutoCreatedLocal' AS name, 65536 AS route_id, 1 AS principal_id, NULL AS remote_service_name,
    NULL AS broker_instance, NULL AS lifetime, 'LOCAL' AS address, NULL AS mirror_address;
