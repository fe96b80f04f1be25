-- SEND ON CONVERSATION ( h1, h2, ... ): one message on many conversations, on all of them or none.
-- Takes: the handles, then as send
-- Gives: notices
-- Errors: 8418, 8426, 8428, 8429, 8431, 8432, 8434, 8435, 8451, 8459, 9618, 60005, 60026, 60033
-- Locks: the groups of the conversations in order of their keys, waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.send_many(
    p_conversation_handles uuid[], p_message_type_name text DEFAULT NULL, p_message_body bytea DEFAULT NULL,
    p_trace text DEFAULT NULL, p_body_fault text DEFAULT NULL, p_catalog_version bigint DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_count integer := coalesce(cardinality(p_conversation_handles), 0);
    v_type text := coalesce(p_message_type_name, 'DEFAULT');
    v_type_id integer;
    v_fault text;
    v_row record;
    v_lock record;
    v_sent record;
    v_notices text;
BEGIN
    PERFORM dialoq.check_message_bytes(octet_length(p_message_body), octet_length(p_trace));
    IF p_body_fault <> '' THEN
        PERFORM dialoq.check_body_fault(p_body_fault);
    END IF;
    PERFORM dialoq.check_catalog_version(p_catalog_version);
    IF v_count = 0 THEN
        PERFORM dialoq.fail(8418, 'SEND names no conversation; it needs at least one handle');
    END IF;
    FOR v_row IN
        SELECT h.handle, h.place
        FROM unnest(p_conversation_handles) WITH ORDINALITY AS h (handle, place)
        WHERE NOT EXISTS (
            SELECT FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = h.handle AND NOT e.is_system)
        ORDER BY h.place LIMIT 1
    LOOP
        IF v_count = 1 THEN
            PERFORM dialoq.fail(8426, dialoq.conversation_not_found(v_row.handle));
        END IF;
        PERFORM dialoq.fail(8435, format('handle %s of %s in the list, %s, was not found', v_row.place, v_count, v_row.handle));
    END LOOP;
    FOR v_row IN
        SELECT h.handle FROM unnest(p_conversation_handles) AS h (handle) GROUP BY h.handle HAVING count(*) > 1 LIMIT 1
    LOOP
        PERFORM dialoq.fail(8451, format(
            'handle %s is listed twice; each conversation may be named once', v_row.handle));
    END LOOP;
    SELECT t.message_type_id INTO v_type_id FROM dialoq.message_type AS t WHERE t.name = v_type AND NOT t.is_dropped;
    IF v_type_id IS NULL THEN
        PERFORM dialoq.fail(8428, dialoq.name_not_found('message type', v_type));
    END IF;
    v_fault := coalesce(p_body_fault, dialoq.body_fault(v_type_id, p_message_body));
    IF coalesce(current_setting('dialoq.session_locks', true), '') = '1' THEN
        -- After a savepoint a lock is the session's, and would stay after a refusal.
        PERFORM dialoq.check_send(h.handle, v_type)
        FROM (SELECT u.handle FROM unnest(p_conversation_handles) WITH ORDINALITY AS u (handle, place)
            ORDER BY u.place OFFSET 0) AS h;
    END IF;
    FOR v_row IN
        SELECT e.conversation_handle AS handle
        FROM dialoq.conversation_endpoint AS e
        WHERE e.conversation_handle = ANY (p_conversation_handles)
        ORDER BY dialoq.group_key(e.conversation_group_id)
    LOOP
        SELECT * INTO v_lock FROM dialoq.lock_handle(v_row.handle, false);
        IF v_lock.endpoint_id = -1 THEN
            -- A SEND that no holder of the groups can make valid does not wait for them.
            PERFORM dialoq.check_send(h.handle, v_type)
            FROM (SELECT u.handle FROM unnest(p_conversation_handles) WITH ORDINALITY AS u (handle, place)
                ORDER BY u.place OFFSET 0) AS h;
            SELECT * INTO v_lock FROM dialoq.lock_handle(v_row.handle, true);
        END IF;
        IF v_lock.endpoint_id IS NULL AND v_count = 1 THEN
            PERFORM dialoq.fail(8426, dialoq.conversation_not_found(v_row.handle));
        ELSIF v_lock.endpoint_id IS NULL THEN
            PERFORM dialoq.fail(8435, format('handle %s of %s in the list, %s, was not found',
                array_position(p_conversation_handles, v_row.handle), v_count, v_row.handle));
        END IF;
        v_notices := concat_ws(' ', v_notices, v_lock.notices);
    END LOOP;
    FOR v_row IN
        SELECT e.endpoint_id
        FROM unnest(p_conversation_handles) WITH ORDINALITY AS h (handle, place)
        JOIN dialoq.conversation_endpoint AS e ON e.conversation_handle = h.handle
        ORDER BY h.place
    LOOP
        SELECT * INTO v_sent FROM dialoq.send_from(v_row.endpoint_id, v_type_id, v_type,
            CASE WHEN length(p_message_body) > 0 THEN p_message_body END, p_trace, v_fault, gen_random_uuid());
        IF v_sent.error_number IS NOT NULL THEN
            PERFORM dialoq.fail(v_sent.error_number, v_sent.error_message);
        END IF;
        v_notices := concat_ws(' ', v_notices, v_sent.notices);
    END LOOP;
    RETURN QUERY SELECT dialoq.publish_notices(v_notices);
END $$;
