-- Ends an attempt that succeeds: the last call of the transaction that received, just before its COMMIT.
-- Takes: the attempt id
-- Gives: notices
-- Errors: 60026
-- Locks: none but what the transaction holds
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.commit_attempt(p_attempt_id uuid)
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
    FOR v_row IN
        WITH gone AS (
            DELETE FROM dialoq.receive_attempt AS a WHERE a.attempt_id = p_attempt_id
            RETURNING a.queue_id, a.conversation_group_id
        )
        SELECT g.queue_id, g.conversation_group_id FROM gone AS g ORDER BY g.queue_id, g.conversation_group_id
    LOOP
        PERFORM dialoq.forget_rollbacks(v_row.queue_id);
        UPDATE dialoq.conversation_endpoint AS e SET rollbacks = 0
        WHERE e.conversation_group_id = v_row.conversation_group_id AND e.rollbacks <> 0;
        -- Messages that came while the group was locked can be received from now on.
        IF EXISTS (
            SELECT FROM dialoq.ready_group AS r
            WHERE r.conversation_group_id <= v_row.conversation_group_id
                AND (r.conversation_group_id, r.generation) >= (v_row.conversation_group_id, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)))
        THEN
            v_notices := concat_ws(' ', v_notices, 'q:' || v_row.queue_id::text);
        END IF;
    END LOOP;
    RETURN QUERY SELECT dialoq.publish_notices(v_notices);
END $$;
