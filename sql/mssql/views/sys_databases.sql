-- sys.databases: the broker columns of this database
CREATE VIEW dialoq.sys_databases AS
SELECT
    DB_NAME() AS name, 1 AS database_id, service_broker_guid, is_broker_enabled,
    is_honor_broker_priority_on
FROM dialoq.broker;
GO
