-- Writes a service with the contracts it accepts, new or not, or removes one.
-- Takes: the columns of service, contract_id_rows: its contracts in order; or the service_id
-- Gives: nothing
-- Errors: 60005
-- Locks: the rows
-- Called by: dialoq_admin (put_service, delete_service)
CREATE FUNCTION dialoq.put_service(
    p_service_id integer, p_name text, p_owner text, p_queue_id integer, p_service_contract_id integer[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    INSERT INTO dialoq.service AS s (service_id, name, owner, queue_id)
    VALUES (p_service_id, p_name, p_owner, p_queue_id)
    ON CONFLICT (service_id) DO UPDATE SET
        name = excluded.name, owner = excluded.owner, queue_id = excluded.queue_id;
    DELETE FROM dialoq.service_contract_usage WHERE service_id = p_service_id;
    INSERT INTO dialoq.service_contract_usage (service_id, position, service_contract_id)
    SELECT p_service_id, u.item - 1, u.service_contract_id
    FROM unnest(p_service_contract_id) WITH ORDINALITY AS u (service_contract_id, item);
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_service', SQLERRM);
END
$$;

CREATE FUNCTION dialoq.delete_service(p_service_id integer)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    DELETE FROM dialoq.service_contract_usage WHERE service_id = p_service_id;
    DELETE FROM dialoq.service WHERE service_id = p_service_id;
$$;
