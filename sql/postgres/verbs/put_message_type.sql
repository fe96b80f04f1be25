-- Writes a message type, new or not. A dropped one stays, marked, for the rows that name it. What waits to be delivered
-- is judged again, because bodies are judged when they arrive; but against a schema only clients of Dialoq can judge.
-- Takes: the columns of message_type
-- Gives: nothing
-- Errors: 60005
-- Locks: the row, and the messages of the type in the transmission queue
-- Called by: dialoq_admin
CREATE FUNCTION dialoq.put_message_type(
    p_message_type_id integer, p_name text, p_owner text, p_validation text, p_xml_schema_collection text,
    p_json_schema text, p_is_dropped boolean
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    v_before text := (SELECT m.validation FROM dialoq.message_type AS m WHERE m.message_type_id = p_message_type_id);
BEGIN
    INSERT INTO dialoq.message_type AS m (
        message_type_id, name, owner, validation, xml_schema_collection, json_schema, is_dropped
    ) VALUES (
        p_message_type_id, p_name, p_owner, p_validation, p_xml_schema_collection, p_json_schema, p_is_dropped
    ) ON CONFLICT (message_type_id) DO UPDATE SET
        name = excluded.name, owner = excluded.owner, validation = excluded.validation,
        xml_schema_collection = excluded.xml_schema_collection, json_schema = excluded.json_schema,
        is_dropped = excluded.is_dropped;
    IF v_before <> p_validation AND p_validation NOT IN ('V', 'S') THEN
        UPDATE dialoq.transmission AS t SET body_fault = dialoq.body_fault(p_message_type_id, t.body)
        WHERE t.message_type_id = p_message_type_id;
    END IF;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_message_type', SQLERRM);
END
$$;
