-- Changes the level of one endpoint. Not in Service Broker, which freezes it at the beginning.
-- Takes: the handle, the level 1 (low) to 10 (high)
-- Gives: notices
-- Errors: 8426, 8438, 60005
-- Locks: the conversation's group, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.reprioritise(p_conversation_handle uuid, p_level integer)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_lock record;
    e record;
    v_notices text;
BEGIN
    IF p_level IS NULL OR p_level NOT BETWEEN 1 AND 10 THEN
        PERFORM dialoq.fail(60005, format('the level is %s; it must be 1 (low) to 10 (high)', p_level));
    END IF;
    SELECT * INTO v_lock FROM dialoq.lock_open(p_conversation_handle, 8438, 'REPRIORITISE');
    UPDATE dialoq.conversation_endpoint AS c SET priority = p_level WHERE c.endpoint_id = v_lock.endpoint_id;
    SELECT c.conversation_group_id, s.queue_id INTO e
    FROM dialoq.conversation_endpoint AS c JOIN dialoq.service AS s ON s.service_id = c.service_id
    WHERE c.endpoint_id = v_lock.endpoint_id;
    IF dialoq.rebuild_ready_rows(e.conversation_group_id) THEN
        v_notices := 'q:' || e.queue_id::text;
    END IF;
    -- A concurrent SEND still announces its message at the old level.
    PERFORM dialoq.request_recheck(v_lock.endpoint_id, true);
    RETURN QUERY SELECT dialoq.publish_notices(concat_ws(' ', v_lock.notices, v_notices, dialoq.recheck_notice()));
END $$;
