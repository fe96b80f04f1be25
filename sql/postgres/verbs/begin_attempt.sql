-- Notes that an open transaction has received from a group. Called on another connection, so that the note stays
-- if the transaction is lost. No note is made if no transaction is receiving from that group of that queue, or
-- if this one is noted: a rollback counts once, and only after a RECEIVE (decision 0022).
-- Takes: the transaction's attempt id, the queue, the group; the first message that the transaction received from it, by its conversation and
--     queuing_order (NULL: the one that RECEIVE gives first of those received so far). If the transaction has moved the conversation before,
--     the message is in another group after a rollback, and the note is of that group
-- Gives: nothing
-- Errors: 60005; 60026; 55P03 if another session notes the same transaction and does not end its own
-- Locks: none; waits 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.begin_attempt(
    p_attempt_id uuid, p_queue_id integer, p_conversation_group_id uuid, p_conversation_handle uuid DEFAULT NULL,
    p_queuing_order bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET lock_timeout = '100ms' AS $$
DECLARE
    v_group uuid;
    v_received record;
BEGIN
    PERFORM dialoq.check_isolation();
    PERFORM dialoq.check_id('p_attempt_id', p_attempt_id);
    IF p_conversation_handle IS NOT NULL THEN
        SELECT e.conversation_group_id INTO v_group
        FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = p_conversation_handle;
    END IF;
    v_group := coalesce(v_group, p_conversation_group_id);
    SELECT * INTO v_received FROM dialoq.receiver_of(p_queue_id, v_group);
    IF v_received.receiver IS NOT NULL THEN
        INSERT INTO dialoq.receive_attempt (attempt_id, conversation_group_id, queue_id, began_at, receiver_xid, first_order)
        VALUES (
            p_attempt_id, v_group, p_queue_id, clock_timestamp(), v_received.receiver,
            coalesce((
                SELECT m.queuing_order
                FROM dialoq.conversation_endpoint AS e
                CROSS JOIN generate_series(0, 2) AS k (delivery_class)
                JOIN dialoq.queue_message AS m
                    ON m.endpoint_id = e.endpoint_id AND m.delivery_class = k.delivery_class AND m.queuing_order = p_queuing_order
                WHERE e.conversation_handle = p_conversation_handle AND e.conversation_group_id = v_group AND m.xmax::text <> '0'),
                v_received.first_order))
        ON CONFLICT DO NOTHING;
    END IF;
END $$;
