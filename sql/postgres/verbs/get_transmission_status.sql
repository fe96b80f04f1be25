-- GET_TRANSMISSION_STATUS: why the first message of a conversation that waits still waits.
-- Takes: the handle
-- Gives: transmission_status, '' if nothing waits or the handle is unknown
-- Errors: none
-- Locks: none
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.get_transmission_status(p_conversation_handle uuid)
RETURNS TABLE (transmission_status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    RETURN QUERY
    SELECT coalesce((
        SELECT t.status
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.effective_transmission AS t ON t.endpoint_id = e.endpoint_id
        WHERE e.conversation_handle = p_conversation_handle AND NOT e.is_system
        ORDER BY t.transmission_id
        LIMIT 1), '');
END $$;
