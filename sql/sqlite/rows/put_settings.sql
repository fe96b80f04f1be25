-- Writes the broker's settings; the marks stay.
-- Takes: ?1 service_broker_guid, ?2 is_broker_enabled, ?3 is_honor_broker_priority_on, ?4 next_object_id
-- Gives: nothing
INSERT INTO dialoq_broker (
    singleton, service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id,
    next_queuing_order, next_endpoint_id, next_transmission_id
) VALUES (1, ?1, ?2, ?3, ?4, 1, 1, 1)
ON CONFLICT (singleton) DO UPDATE SET
    service_broker_guid = excluded.service_broker_guid, is_broker_enabled = excluded.is_broker_enabled,
    is_honor_broker_priority_on = excluded.is_honor_broker_priority_on, next_object_id = excluded.next_object_id
