-- Notes that an open transaction has received from a group. Called on another connection, so that the note stays
-- if the transaction is lost. No note is made if no transaction is receiving from that group of that queue, or
-- if this one is noted: a rollback counts once, and only after a RECEIVE (decision 0022).
-- Takes: the transaction's attempt id, the queue, the group
-- Gives: nothing
-- Errors: 60005; 60026; 55P03 if another session notes the same transaction and does not end its own
-- Locks: none; waits 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.begin_attempt(p_attempt_id uuid, p_queue_id integer, p_conversation_group_id uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET lock_timeout = '100ms' AS $$
DECLARE
    v_receiver xid8;
BEGIN
    PERFORM dialoq.check_isolation();
    PERFORM dialoq.check_id('p_attempt_id', p_attempt_id);
    v_receiver := dialoq.receiver_of(p_queue_id, p_conversation_group_id);
    IF v_receiver IS NOT NULL THEN
        INSERT INTO dialoq.receive_attempt (attempt_id, conversation_group_id, queue_id, began_at, receiver_xid)
        VALUES (p_attempt_id, p_conversation_group_id, p_queue_id, clock_timestamp(), v_receiver)
        ON CONFLICT DO NOTHING;
    END IF;
END $$;
