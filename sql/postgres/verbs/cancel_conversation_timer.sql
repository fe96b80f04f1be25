-- Takes back a conversation's timer, if it has one; a DialogTimer message that has arrived stays. Not in Service Broker.
-- Takes: the handle
-- Gives: notices
-- Errors: 8426, 8458
-- Locks: the conversation's group, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.cancel_conversation_timer(p_conversation_handle uuid)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_lock record;
BEGIN
    SELECT * INTO v_lock FROM dialoq.lock_open(p_conversation_handle, 8458, 'CANCEL CONVERSATION TIMER');
    UPDATE dialoq.conversation_endpoint AS e SET dialog_timer = NULL WHERE e.endpoint_id = v_lock.endpoint_id;
    RETURN QUERY SELECT dialoq.publish_notices(
        concat_ws(' ', v_lock.notices, dialoq.reschedule(v_lock.endpoint_id, dialoq.current_time_utc())));
END $$;
