-- Writes a broker priority, new or not, or removes one. NULL is ANY.
-- Takes: the columns of conversation_priority; or the priority_id
-- Gives: nothing
-- Errors: 60005
-- Locks: the row
-- Called by: dialoq_admin (put_conversation_priority, delete_conversation_priority)
CREATE FUNCTION dialoq.put_conversation_priority(
    p_priority_id integer, p_name text, p_service_contract_id integer, p_local_service_id integer,
    p_remote_service_name text, p_priority integer
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    INSERT INTO dialoq.conversation_priority AS p (
        priority_id, name, service_contract_id, local_service_id, remote_service_name, priority
    ) VALUES (
        p_priority_id, p_name, p_service_contract_id, p_local_service_id, p_remote_service_name, p_priority::smallint
    ) ON CONFLICT (priority_id) DO UPDATE SET
        name = excluded.name, service_contract_id = excluded.service_contract_id,
        local_service_id = excluded.local_service_id, remote_service_name = excluded.remote_service_name,
        priority = excluded.priority;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_conversation_priority', SQLERRM);
END
$$;

CREATE FUNCTION dialoq.delete_conversation_priority(p_priority_id integer)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    DELETE FROM dialoq.conversation_priority WHERE priority_id = p_priority_id;
$$;
