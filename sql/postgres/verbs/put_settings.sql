-- Writes the settings of the broker; makes its row with the first call.
-- Takes: service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id
-- Gives: nothing
-- Errors: 60005
-- Locks: the broker's row
-- Called by: dialoq_admin
CREATE FUNCTION dialoq.put_settings(
    p_service_broker_guid uuid, p_is_broker_enabled boolean, p_is_honor_broker_priority_on boolean,
    p_next_object_id integer
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    INSERT INTO dialoq.broker AS b (
        singleton, service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id,
        catalog_version, closed_retention_s
    ) VALUES (
        1, p_service_broker_guid, p_is_broker_enabled, p_is_honor_broker_priority_on, p_next_object_id, 1, 1800
    ) ON CONFLICT (singleton) DO UPDATE SET
        service_broker_guid = excluded.service_broker_guid, is_broker_enabled = excluded.is_broker_enabled,
        is_honor_broker_priority_on = excluded.is_honor_broker_priority_on, next_object_id = excluded.next_object_id;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_settings', SQLERRM);
END
$$;
