-- Takes back the notes of a transaction that is about to roll back, and of which no caller has seen a message: its rollback does
-- not count.
-- Takes: the attempt id
-- Gives: nothing
-- Errors: 60026; 55P03 if another session keeps a row locked, and then the rollback counts
-- Locks: its rows, 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.withdraw_attempt(p_attempt_id uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET lock_timeout = '100ms' AS $$
BEGIN
    PERFORM dialoq.check_isolation();
    DELETE FROM dialoq.receive_attempt AS a WHERE a.attempt_id = p_attempt_id;
END $$;
