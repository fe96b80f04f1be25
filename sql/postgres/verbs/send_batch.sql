-- SENDs of different callers in one transaction. One that is refused leaves the others alone and writes nothing.
-- Takes: for each its handle, message type (NULL is DEFAULT), body, trace context, what its caller found wrong with the body
--     and message id; the version of the definitions they looked with
-- Gives: for each item, from 0: error_number (NULL: sent; -1: another transaction holds the group, do it alone),
--     error_message; said in the first row
-- Errors: 60033
-- Locks: the groups of the conversations, without waiting
CREATE OR REPLACE FUNCTION dialoq.send_batch(
    p_conversation_handles uuid[], p_message_type_names text[], p_message_bodies bytea[], p_traces text[],
    p_body_faults text[], p_message_ids uuid[], p_catalog_version bigint DEFAULT NULL)
RETURNS TABLE (item integer, error_number integer, error_message text, said text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dialoq, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_row record;
    v_lock record;
    v_sent record;
    v_said text;
    v_errors integer[] := array_fill(NULL::integer, ARRAY[cardinality(p_conversation_handles)]);
    v_texts text[] := array_fill(NULL::text, ARRAY[cardinality(p_conversation_handles)]);
BEGIN
    PERFORM dialoq.check_catalog_version(p_catalog_version);
    FOR v_row IN
        SELECT i.place, i.handle, coalesce(i.type_name, 'DEFAULT') AS type_name, t.message_type_id,
            CASE WHEN length(i.body) > 0 THEN i.body END AS body, i.trace, i.fault, coalesce(i.id, gen_random_uuid()) AS id
        FROM unnest(p_conversation_handles, p_message_type_names, p_message_bodies, p_traces, p_body_faults, p_message_ids)
            WITH ORDINALITY AS i (handle, type_name, body, trace, fault, id, place)
        LEFT JOIN dialoq.message_type AS t ON t.name = coalesce(i.type_name, 'DEFAULT') AND NOT t.is_dropped
        ORDER BY i.place
    LOOP
        SELECT * INTO v_lock FROM dialoq.lock_handle(v_row.handle, false);
        v_said := concat_ws(' ', v_said, v_lock.said);
        IF v_lock.endpoint_id IS NULL THEN
            v_errors[v_row.place] := 8426;
            v_texts[v_row.place] := format(
                'conversation handle %s was not found: it was never begun here, or it has ended', v_row.handle);
        ELSIF v_row.message_type_id IS NULL THEN
            v_errors[v_row.place] := 8428;
            v_texts[v_row.place] := format(
                'message type ''%s'' was not found; names are compared byte by byte', v_row.type_name);
        ELSIF v_lock.endpoint_id = -1 THEN
            v_errors[v_row.place] := -1;
        ELSE
            SELECT * INTO v_sent FROM dialoq.send_from(v_lock.endpoint_id, v_row.message_type_id, v_row.type_name,
                v_row.body, v_row.trace, coalesce(v_row.fault, dialoq.body_fault(v_row.message_type_id, v_row.body)), v_row.id);
            v_errors[v_row.place] := v_sent.error_number;
            v_texts[v_row.place] := v_sent.error_message;
            v_said := concat_ws(' ', v_said, v_sent.said);
        END IF;
    END LOOP;
    v_said := dialoq.say(v_said);
    RETURN QUERY
    SELECT r.place::integer - 1, r.number, r.message, CASE WHEN r.place = 1 THEN v_said END
    FROM unnest(v_errors, v_texts) WITH ORDINALITY AS r (number, message, place)
    ORDER BY r.place;
END $$;
