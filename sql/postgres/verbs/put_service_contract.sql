-- Writes a contract with its message types, new or not. A dropped one stays, marked, for the conversations over it.
-- Takes: the columns of service_contract; usage_rows: of every message type its name and who sends it
-- Gives: nothing
-- Errors: 60005
-- Locks: the rows
-- Called by: dialoq_admin
CREATE FUNCTION dialoq.put_service_contract(
    p_service_contract_id integer, p_name text, p_owner text, p_is_dropped boolean,
    p_message_type text[], p_is_sent_by_initiator integer[], p_is_sent_by_target integer[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    INSERT INTO dialoq.service_contract AS c (service_contract_id, name, owner, is_dropped)
    VALUES (p_service_contract_id, p_name, p_owner, p_is_dropped)
    ON CONFLICT (service_contract_id) DO UPDATE SET
        name = excluded.name, owner = excluded.owner, is_dropped = excluded.is_dropped;
    DELETE FROM dialoq.service_contract_message_usage WHERE service_contract_id = p_service_contract_id;
    INSERT INTO dialoq.service_contract_message_usage (
        service_contract_id, position, message_type, is_sent_by_initiator, is_sent_by_target
    )
    SELECT p_service_contract_id, u.item - 1, u.message_type, u.by_initiator <> 0, u.by_target <> 0
    FROM unnest(p_message_type, p_is_sent_by_initiator, p_is_sent_by_target) WITH ORDINALITY
        AS u (message_type, by_initiator, by_target, item);
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_service_contract', SQLERRM);
END
$$;
