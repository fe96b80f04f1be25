-- Settings, and the version that every change of a definition raises.
-- Takes: nothing
-- Gives: service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id, catalog_version
SELECT
    service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id, catalog_version
FROM dialoq.read_broker
