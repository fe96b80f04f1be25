-- sys.databases: the broker columns of this database
CREATE VIEW sys_databases AS
SELECT
    'main' AS name, 1 AS database_id,
    lower(substr(hex(service_broker_guid), 1, 8) || '-' || substr(hex(service_broker_guid), 9, 4) || '-' || substr(hex(service_broker_guid), 13, 4)
        || '-' || substr(hex(service_broker_guid), 17, 4) || '-' || substr(hex(service_broker_guid), 21, 12)) AS service_broker_guid,
    is_broker_enabled, is_honor_broker_priority_on
FROM dialoq_broker;
