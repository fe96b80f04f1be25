-- Settings, the version that every change of a definition raises, and what the server's clock shows.
-- Takes: nothing
-- Gives: service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id, catalog_version, now_at;
--     is_manual_now, whether a test has set that time
SELECT
    service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id, catalog_version, now_at,
    is_manual_now
FROM dialoq.read_broker
