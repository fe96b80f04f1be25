-- Counts the rollback of a transaction that received and has ended. Has no effect if another session has counted it, or the
-- transaction has committed; if it is still open, tick counts it afterwards.
-- Takes: the attempt id; why it was rolled back (NULL: not known), for messages that become dead letters by this
-- Gives: notices
-- Errors: 60026
-- Locks: its groups if the queue has quarantine or a retry policy, without waiting; otherwise the count of the queue, 100 ms at most; the
--     definitions if a queue is disabled by this, 250 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.count_rollback(p_attempt_id uuid, p_reason text DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    PERFORM dialoq.check_isolation();
    RETURN QUERY SELECT dialoq.publish_notices(dialoq.count_attempt(p_attempt_id, p_reason));
END $$;
