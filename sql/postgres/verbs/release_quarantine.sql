-- Puts a conversation group that poison handling set aside back into its queue. Not in Service Broker.
-- Takes: the group
-- Gives: notices
-- Errors: 8436
-- Locks: the group, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.release_quarantine(p_conversation_group_id uuid)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_queue_id integer;
BEGIN
    PERFORM dialoq.check_isolation();
    -- Before the wait for the lock, and under the lock.
    FOR v_attempt IN 1..2 LOOP
        SELECT s.queue_id INTO v_queue_id
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.conversation_group_id = p_conversation_group_id LIMIT 1;
        IF NOT FOUND THEN
            PERFORM dialoq.fail(8436, dialoq.group_not_found(p_conversation_group_id));
        END IF;
        PERFORM dialoq.lock_group(p_conversation_group_id);
    END LOOP;
    PERFORM dialoq.set_quarantined(p_conversation_group_id, false);
    PERFORM dialoq.forget_attempts(p_conversation_group_id);
    RETURN QUERY SELECT dialoq.publish_notices('q:' || v_queue_id::text);
END $$;
