-- BEGIN CONVERSATION TIMER: has a DialogTimer message arrive after that time; a new timer replaces the old.
-- Takes: the handle, the seconds
-- Gives: notices
-- Errors: 8410, 8411, 8426, 8458
-- Locks: the conversation's group, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.begin_conversation_timer(p_conversation_handle uuid, p_timeout_seconds bigint)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_lock record;
    v_now timestamptz;
    v_timer timestamptz;
    v_lifetime timestamptz;
BEGIN
    IF p_timeout_seconds IS NULL OR p_timeout_seconds NOT BETWEEN 1 AND 2147483647 THEN
        PERFORM dialoq.fail(8411, format('TIMEOUT is %s seconds; it must be 1 to 2147483647', p_timeout_seconds));
    END IF;
    v_now := dialoq.current_time_utc();
    v_timer := v_now + p_timeout_seconds * interval '1 second';
    -- A lifetime never changes, so it is read without the lock. lock_open refuses a conversation that has ended.
    SELECT e.lifetime INTO v_lifetime
    FROM dialoq.conversation_endpoint AS e
    WHERE e.conversation_handle = p_conversation_handle AND NOT e.is_system AND e.state NOT IN ('DO', 'CD');
    IF v_timer > v_lifetime THEN
        PERFORM dialoq.fail(8410, format('the timer would fire at %s, after the conversation expires at %s',
            dialoq.time_text(v_timer), dialoq.time_text(v_lifetime)));
    END IF;
    SELECT * INTO v_lock FROM dialoq.lock_open(p_conversation_handle, 8458, 'BEGIN CONVERSATION TIMER');
    UPDATE dialoq.conversation_endpoint AS e SET dialog_timer = v_timer WHERE e.endpoint_id = v_lock.endpoint_id;
    RETURN QUERY SELECT dialoq.publish_notices(concat_ws(' ', v_lock.notices, dialoq.reschedule(v_lock.endpoint_id, v_now)));
END $$;
