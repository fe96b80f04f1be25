-- Notes that an open transaction has received from a group. Called on another connection, so that it is known even if
-- the transaction is never heard of again.
-- Takes: the transaction's attempt id, the queue, the group
-- Gives: nothing
-- Errors: none
-- Locks: none
CREATE OR REPLACE FUNCTION dialoq.begin_attempt(p_attempt_id uuid, p_queue_id integer, p_conversation_group_id uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dialoq, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    INSERT INTO dialoq.receive_attempt (attempt_id, conversation_group_id, queue_id, began_at)
    VALUES (p_attempt_id, p_conversation_group_id, p_queue_id, dialoq.current_time_utc())
    ON CONFLICT (attempt_id, conversation_group_id) DO NOTHING;
END $$;
