-- SEND ON CONVERSATION, one conversation.
-- Takes: the handle, the message type (NULL is DEFAULT), the body (empty is none), the trace context, the fault that the
--     caller found in the body (NULL: not checked; '': none; else code and description with | between), the version of the
--     definitions it was checked with (NULL: any), an id for the message (NULL: made here)
-- Gives: message_id, notices
-- Errors: 8426, 8428, 8429, 8431, 8432, 8434, 9618, 60005, 60026, 60033
-- Locks: the conversation's group, waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.send(
    p_conversation_handle uuid, p_message_type_name text DEFAULT NULL, p_message_body bytea DEFAULT NULL,
    p_trace text DEFAULT NULL, p_body_fault text DEFAULT NULL, p_catalog_version bigint DEFAULT NULL,
    p_message_id uuid DEFAULT NULL)
RETURNS TABLE (message_id uuid, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_id uuid := coalesce(p_message_id, gen_random_uuid());
    v_type text := coalesce(p_message_type_name, 'DEFAULT');
    v_type_id integer;
    v_fault text;
    v_lock record;
    v_sent record;
BEGIN
    IF p_body_fault <> '' THEN
        PERFORM dialoq.check_body_fault(p_body_fault);
    END IF;
    PERFORM dialoq.check_catalog_version(p_catalog_version);
    IF NOT EXISTS (
        SELECT FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = p_conversation_handle AND NOT e.is_system)
    THEN
        PERFORM dialoq.fail(8426, dialoq.conversation_not_found(p_conversation_handle));
    END IF;
    SELECT t.message_type_id INTO v_type_id FROM dialoq.message_type AS t WHERE t.name = v_type AND NOT t.is_dropped;
    IF v_type_id IS NULL THEN
        PERFORM dialoq.fail(8428, dialoq.name_not_found('message type', v_type));
    END IF;
    -- Before the lock: a large body takes long.
    v_fault := coalesce(p_body_fault, dialoq.body_fault(v_type_id, p_message_body));
    SELECT * INTO v_lock FROM dialoq.lock_handle(p_conversation_handle, false);
    IF v_lock.endpoint_id = -1 THEN
        -- A SEND that no holder of the group can make valid does not wait for it.
        PERFORM dialoq.check_send(p_conversation_handle, v_type);
        SELECT * INTO v_lock FROM dialoq.lock_handle(p_conversation_handle, true);
    END IF;
    IF v_lock.endpoint_id IS NULL THEN
        PERFORM dialoq.fail(8426, dialoq.conversation_not_found(p_conversation_handle));
    END IF;
    SELECT * INTO v_sent FROM dialoq.send_from(v_lock.endpoint_id, v_type_id, v_type,
        CASE WHEN length(p_message_body) > 0 THEN p_message_body END, p_trace, v_fault, v_id);
    IF v_sent.error_number IS NOT NULL THEN
        PERFORM dialoq.fail(v_sent.error_number, v_sent.error_message);
    END IF;
    RETURN QUERY SELECT v_id, dialoq.publish_notices(concat_ws(' ', v_lock.notices, v_sent.notices));
END $$;
