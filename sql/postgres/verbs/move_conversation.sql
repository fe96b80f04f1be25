-- MOVE CONVERSATION: puts a conversation into another group of the same service.
-- Takes: the handle, the group, which must have conversations
-- Gives: notices
-- Errors: 8426, 8436, 8438, 8439
-- Locks: both groups in the order of their keys, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.move_conversation(p_conversation_handle uuid, p_conversation_group_id uuid)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_lock record;
    e dialoq.conversation_endpoint;
    v_recheck_id bigint;
    v_notices text;
BEGIN
    PERFORM dialoq.check_isolation();
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c
    WHERE c.conversation_handle = p_conversation_handle AND NOT c.is_system AND c.state NOT IN ('DO', 'CD');
    -- A MOVE that no holder of the groups can make valid does not wait for them. The locks are taken in the order of their keys.
    IF FOUND THEN
        PERFORM dialoq.check_destination(p_conversation_group_id, e.service_id);
        IF dialoq.group_key(p_conversation_group_id) < dialoq.group_key(e.conversation_group_id) THEN
            PERFORM dialoq.lock_group(p_conversation_group_id);
        END IF;
    END IF;
    SELECT * INTO v_lock FROM dialoq.lock_open(p_conversation_handle, 8438, 'MOVE CONVERSATION');
    PERFORM dialoq.lock_group(p_conversation_group_id);
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = v_lock.endpoint_id;
    PERFORM dialoq.check_destination(p_conversation_group_id, e.service_id);
    IF e.conversation_group_id <> p_conversation_group_id THEN
        -- A concurrent SEND still announces its message to the old group. Until the recheck the rows of the new group do not say how old
        -- the messages of this endpoint are.
        v_recheck_id := dialoq.request_recheck_of_moved(e.endpoint_id);
        -- The count of rollbacks is that of the group.
        UPDATE dialoq.conversation_endpoint AS c
        SET conversation_group_id = p_conversation_group_id, moved_recheck_id = v_recheck_id, rollbacks = (
            SELECT max(o.rollbacks) FROM dialoq.conversation_endpoint AS o
            WHERE o.conversation_group_id = p_conversation_group_id)
        WHERE c.endpoint_id = e.endpoint_id;
        PERFORM dialoq.touch_counter(e.endpoint_id);
        PERFORM dialoq.rebuild_ready_rows(e.conversation_group_id);
        PERFORM dialoq.rebuild_ready_rows(p_conversation_group_id);
        -- Also if no message is ready: a RECEIVE that waits for the old group has to find that it is gone.
        v_notices := concat_ws(' ', (SELECT 'q:' || s.queue_id::text FROM dialoq.service AS s WHERE s.service_id = e.service_id),
            dialoq.recheck_notice());
    END IF;
    RETURN QUERY SELECT dialoq.publish_notices(concat_ws(' ', v_lock.notices, v_notices));
END $$;

-- Refuses a MOVE into a group that has no conversations, or those of another service.
CREATE OR REPLACE FUNCTION dialoq.check_destination(p_group uuid, p_service_id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_other integer;
BEGIN
    SELECT c.service_id INTO v_other FROM dialoq.conversation_endpoint AS c WHERE c.conversation_group_id = p_group LIMIT 1;
    IF NOT FOUND THEN
        PERFORM dialoq.fail(8436, dialoq.group_not_found(p_group));
    ELSIF v_other <> p_service_id THEN
        PERFORM dialoq.fail(8439, format(
            'conversation group %s belongs to service ''%s'', the conversation to ''%s''; MOVE stays within one',
            p_group, coalesce((SELECT s.name FROM dialoq.service AS s WHERE s.service_id = v_other), ''),
            coalesce((SELECT s.name FROM dialoq.service AS s WHERE s.service_id = p_service_id), '')));
    END IF;
END $$;
