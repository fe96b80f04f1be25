-- Counts the loss of a transaction that received and has ended without its reader's doing, as when its connection is cut: of
-- transactions that are lost together a queue counts one (decision 0059). Has no effect if another session has counted it, or the
-- transaction has committed; if it is still open, tick counts it afterwards.
-- Takes: the attempt id; for how long it had received, in milliseconds, some seconds more or less (NULL: since its note)
-- Gives: notices
-- Errors: 60026
-- Locks: its groups if the queue has quarantine or a retry policy, without waiting; otherwise the count of the queue, 100 ms at most; the
--     definitions if a queue is disabled by this, 250 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.count_loss(p_attempt_id uuid, p_age_ms integer DEFAULT NULL)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    PERFORM dialoq.check_isolation();
    -- The call may have waited for its connection. Five seconds were chosen, not measured: of one group each loss counts all the same.
    RETURN QUERY SELECT dialoq.publish_notices(dialoq.count_attempt(
        p_attempt_id, p_lost_since => clock_timestamp() - interval '5 seconds' - greatest(p_age_ms, 0) * interval '1 millisecond'));
END $$;
