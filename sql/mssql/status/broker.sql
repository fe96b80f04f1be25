-- The broker's own settings.
-- Takes: nothing
-- Gives: service_broker_guid, is_broker_enabled, is_honor_broker_priority_on
SELECT service_broker_guid, is_broker_enabled, is_honor_broker_priority_on
FROM dialoq.read_broker
