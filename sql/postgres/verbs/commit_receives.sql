-- Ends the rollbacks in a row of the queues that a transaction has received from: a call just before its COMMIT. It needs no
-- note (begin_attempt), so a transaction that commits before it is noted calls only this.
-- Takes: the queues
-- Gives: nothing
-- Errors: none
-- Locks: none
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.commit_receives(p_queue_ids integer[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_queue_id integer;
BEGIN
    FOR v_queue_id IN SELECT q.queue_id FROM unnest(p_queue_ids) AS q (queue_id) ORDER BY q.queue_id LOOP
        PERFORM dialoq.forget_rollbacks(v_queue_id);
    END LOOP;
END $$;
