-- sys.routes: the one route of a store that delivers to itself
CREATE VIEW dialoq.sys_routes AS
SELECT
    'AutoCreatedLocal'::text AS name, 65536 AS route_id, 1 AS principal_id, NULL::text AS remote_service_name,
    NULL::text AS broker_instance, NULL::timestamptz AS lifetime, 'LOCAL'::text AS address, NULL::text AS mirror_address;
