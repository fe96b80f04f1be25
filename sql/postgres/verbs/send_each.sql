-- Many messages, each with a conversation, type and body of its own: all of them are sent or none. Messages of one
-- conversation keep their order.
-- Takes: the columns of a table, a row for each message, of which all but the handles may be NULL: handles, message types (NULL
--     is DEFAULT), bodies (empty is none), trace contexts, faults as send takes them, ids for the messages (NULL: made here); the
--     version of the definitions the bodies were checked with (NULL: any). At most 10000 messages with 256 MiB of bodies.
-- Gives: notices
-- Errors: 1205, 8426, 8428, 8429, 8431, 8432, 8434, 9618, 60005, 60026, 60033; the text begins with the place of the message
-- Locks: the groups of the conversations in order of their keys, waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.send_each(
    p_conversation_handles uuid[], p_message_type_names text[] DEFAULT NULL, p_message_bodies bytea[] DEFAULT NULL,
    p_traces text[] DEFAULT NULL, p_body_faults text[] DEFAULT NULL, p_message_ids uuid[] DEFAULT NULL,
    p_catalog_version bigint DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_count integer := coalesce(cardinality(p_conversation_handles), 0);
    v_keeps_locks boolean := coalesce(current_setting('dialoq.session_locks', true) = '1', false);
    v_types text[] := coalesce(p_message_type_names, array_fill(NULL::text, ARRAY[v_count]));
    v_bodies bytea[] := coalesce(p_message_bodies, array_fill(NULL::bytea, ARRAY[v_count]));
    v_traces text[] := coalesce(p_traces, array_fill(NULL::text, ARRAY[v_count]));
    v_faults text[] := coalesce(p_body_faults, array_fill(NULL::text, ARRAY[v_count]));
    v_ids uuid[] := coalesce(p_message_ids, array_fill(NULL::uuid, ARRAY[v_count]));
    v_bytes bigint;
    v_is_checked boolean := false;
    v_row record;
    v_notices text;
BEGIN
    IF v_count = 0 AND 0 = ALL (ARRAY[cardinality(v_types), cardinality(v_bodies), cardinality(v_traces),
        cardinality(v_faults), cardinality(v_ids)])
    THEN
        RETURN QUERY SELECT NULL::text;
        RETURN;
    ELSIF (dialoq.is_column(p_conversation_handles, v_count) AND dialoq.is_column(v_types, v_count)
        AND dialoq.is_column(v_bodies, v_count) AND dialoq.is_column(v_traces, v_count)
        AND dialoq.is_column(v_faults, v_count) AND dialoq.is_column(v_ids, v_count)) IS NOT TRUE
    THEN
        PERFORM dialoq.refuse_columns('send_each');
    ELSIF v_count > 10000 THEN
        PERFORM dialoq.fail(60005, format('the list of send_each is %s messages; it must be at most 10000 messages', v_count));
    END IF;
    IF pg_column_size(v_bodies) > 268435456 THEN
        SELECT sum(length(b.body)) INTO v_bytes FROM unnest(v_bodies) AS b (body);
        IF v_bytes > 268435456 THEN
            PERFORM dialoq.fail(60005, format(
                'the list of send_each is %s bytes of bodies; it must be at most 268435456 bytes', v_bytes));
        END IF;
    END IF;
    PERFORM dialoq.check_isolation();
    -- One by one and in order, so that two calls cannot wait for each other.
    FOR v_row IN
        SELECT g.group_id, dialoq.group_key(g.group_id) AS key
        FROM (
            SELECT DISTINCT e.group_id
            FROM unnest(p_conversation_handles) AS h (handle)
            CROSS JOIN LATERAL (
                SELECT c.conversation_group_id AS group_id FROM dialoq.conversation_endpoint AS c
                WHERE c.conversation_handle = h.handle AND NOT c.is_system
                OFFSET 0
            ) AS e
        ) AS g
        ORDER BY 2
    LOOP
        IF pg_try_advisory_xact_lock(v_row.key) AND (NOT v_keeps_locks OR pg_try_advisory_lock(v_row.key)) THEN
            CONTINUE;
        END IF;
        IF NOT v_is_checked THEN
            -- A SEND that no holder of the groups can make valid does not wait for them.
            PERFORM dialoq.check_each(p_conversation_handles, v_types, v_bodies, v_faults);
            v_is_checked := true;
        END IF;
        PERFORM dialoq.lock_group(v_row.group_id);
    END LOOP;
    IF ('' = ALL (v_faults)) IS NOT TRUE THEN
        -- A body may break its conversation, so the messages go one by one.
        PERFORM dialoq.check_each(p_conversation_handles, v_types, v_bodies, v_faults);
        RETURN QUERY SELECT dialoq.publish_notices(dialoq.send_in_order(
            p_conversation_handles, v_types, v_bodies, v_traces, v_faults, v_ids, p_catalog_version));
        RETURN;
    END IF;
    FOR v_row IN
        SELECT b.item, b.error_number, b.error_message, b.notices
        FROM dialoq.send_batch(p_conversation_handles, v_types, v_bodies, v_traces, v_faults, v_ids, p_catalog_version) AS b
    LOOP
        IF v_row.error_number = -1 THEN
            RAISE EXCEPTION 'a conversation of this list was moved to another group at the same moment; run the transaction again'
                USING ERRCODE = 'serialization_failure';
        ELSIF v_row.error_number IS NOT NULL THEN
            PERFORM dialoq.fail(v_row.error_number,
                format('message %s of %s: %s', v_row.item + 1, v_count, v_row.error_message));
        END IF;
        v_notices := coalesce(v_notices, v_row.notices);
    END LOOP;
    RETURN QUERY SELECT v_notices;
END $$;
