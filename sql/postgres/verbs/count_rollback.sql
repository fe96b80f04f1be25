-- Counts the rollback of a transaction that received and has ended. Has no effect if another session has counted it, or the
-- transaction has committed; if it is still open, tick counts it afterwards.
-- Takes: the attempt id; why it was rolled back (NULL: not known), for messages that become dead letters by this; for how many milliseconds
--     to wait for its end, 60000 at most
-- Gives: notices
-- Errors: 60005; 60026
-- Locks: its groups if the queue has quarantine or a retry policy, without waiting; otherwise the count of the queue, 100 ms at most; the
--     definitions if a queue is disabled by this, 250 ms at most. With a wait, before these: the first of its groups, for so long
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.count_rollback(p_attempt_id uuid, p_reason text DEFAULT NULL, p_wait_ms integer DEFAULT 0)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_timeout text := current_setting('lock_timeout');
    v_group uuid;
BEGIN
    PERFORM dialoq.check_isolation();
    PERFORM dialoq.check_range('the wait for a rollback in milliseconds', p_wait_ms, 0, 60000);
    IF p_wait_ms > 0 THEN
        -- Its groups are free at its end, and the next in the line is this count: a pause begins before another receiver has the group. It waits
        -- for one only: while it kept that and waited for the next, a receiver could want both in the other order, and be the one to give way.
        v_group := (
            SELECT a.conversation_group_id FROM dialoq.receive_attempt AS a WHERE a.attempt_id = p_attempt_id
            ORDER BY dialoq.group_key(a.conversation_group_id) LIMIT 1);
        IF v_group IS NOT NULL THEN
            BEGIN
                PERFORM set_config('lock_timeout', p_wait_ms::text, true);
                PERFORM dialoq.wait_for_group(v_group);
                PERFORM set_config('lock_timeout', v_timeout, true);
            EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
                NULL;
            END;
        END IF;
    END IF;
    RETURN QUERY SELECT dialoq.publish_notices(dialoq.count_attempt(p_attempt_id, p_reason));
END $$;
