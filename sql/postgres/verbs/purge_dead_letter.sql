-- Removes a dead letter for good. Not in Service Broker.
-- Takes: the dead letter
-- Gives: notices
-- Errors: 60048, 60049
-- Locks: the dead letter, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.purge_dead_letter(p_dead_letter_id bigint)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    PERFORM dialoq.check_isolation();
    DELETE FROM dialoq.dead_letter AS l
    WHERE l.queuing_order = (
        SELECT o.queuing_order FROM dialoq.dead_letter AS o WHERE o.queuing_order = p_dead_letter_id FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        PERFORM dialoq.dead_letter_missing(p_dead_letter_id);
    END IF;
    RETURN QUERY SELECT NULL::text;
END $$;
