-- END CONVERSATION, in one of its three forms: plain, WITH ERROR, WITH CLEANUP.
-- Takes: the handle; code and description of WITH ERROR (NULL: plain); whether it is WITH CLEANUP
-- Gives: state, the two letters of the endpoint's state before; notices
-- Errors: 8424, 8426, 8427, 60005
-- Locks: the conversation's group, waiting; the peer's if it has ended already, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.end_conversation(
    p_conversation_handle uuid, p_error_code integer DEFAULT NULL, p_description text DEFAULT NULL,
    p_cleanup boolean DEFAULT false)
RETURNS TABLE (state text, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_lock record;
    v_state text;
    v_notices text;
BEGIN
    IF p_error_code IS NULL AND p_description IS NOT NULL OR p_error_code < 1 THEN
        PERFORM dialoq.fail(8424, format(
            'the error code of END CONVERSATION is %s; it must be above 0, the others belong to the broker',
            coalesce(p_error_code::text, 'NULL')));
    END IF;
    IF length(p_description) > 3000 THEN
        PERFORM dialoq.fail(60005, format(
            'the length of the error description is %s; it must be 3000 characters at most', length(p_description)));
    END IF;
    IF p_cleanup IS TRUE THEN
        SELECT * INTO v_lock FROM dialoq.lock_handle(p_conversation_handle, true);
        IF v_lock.endpoint_id IS NULL THEN
            PERFORM dialoq.fail(8426, dialoq.conversation_not_found(p_conversation_handle));
        END IF;
    ELSE
        SELECT * INTO v_lock FROM dialoq.lock_open(p_conversation_handle, 8427, NULL);
    END IF;
    SELECT e.state INTO v_state FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = v_lock.endpoint_id;
    v_notices := dialoq.end_endpoint(v_lock.endpoint_id, p_error_code, coalesce(p_description, ''),
        p_cleanup IS TRUE, dialoq.current_time_utc());
    RETURN QUERY SELECT v_state, dialoq.publish_notices(concat_ws(' ', v_lock.notices, v_notices));
END $$;
