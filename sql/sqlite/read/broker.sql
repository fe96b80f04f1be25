-- Reads the settings and the marks.
-- Takes: nothing
-- Gives: service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id, next_queuing_order,
-- next_endpoint_id, next_transmission_id
SELECT
    service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id,
    next_queuing_order, next_endpoint_id, next_transmission_id
FROM dialoq_broker WHERE singleton = 1
