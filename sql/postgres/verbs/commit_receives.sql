-- Ends the rollbacks in a row of the queues that a transaction has received from: a call just before its COMMIT. It needs no
-- note (begin_attempt), so a transaction that commits before it is noted calls only this.
-- Takes: the queues; beside each the group if the transaction has taken all its messages, or NULL
-- Gives: notices; no row if there are none, as nearly always
-- Errors: 60026
-- Locks: none
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.commit_receives(p_queue_ids integer[], p_conversation_group_ids uuid[])
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_row record;
    v_notices text;
BEGIN
    IF NOT dialoq.is_read_committed() THEN
        PERFORM dialoq.check_isolation();
    END IF;
    -- Nearly every commit ends here.
    IF num_nonnulls(VARIADIC p_conversation_group_ids) = 0 AND NOT EXISTS (
        SELECT FROM dialoq.queue_rollback AS r WHERE r.queue_id = ANY (p_queue_ids))
    THEN
        RETURN;
    END IF;
    FOR v_row IN
        SELECT q.queue_id, q.group_id FROM unnest(p_queue_ids, p_conversation_group_ids) AS q (queue_id, group_id)
        ORDER BY q.queue_id, q.group_id
    LOOP
        PERFORM dialoq.forget_rollbacks(v_row.queue_id);
        -- Messages that came while the group was locked can be received from now on.
        IF v_row.group_id IS NOT NULL
            AND EXISTS (
                SELECT FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= v_row.group_id
                    AND (r.conversation_group_id, r.generation) >= (v_row.group_id, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)))
        THEN
            v_notices := concat_ws(' ', v_notices, 'q:' || v_row.queue_id::text);
        END IF;
    END LOOP;
    RETURN QUERY SELECT dialoq.publish_notices(v_notices);
END $$;
