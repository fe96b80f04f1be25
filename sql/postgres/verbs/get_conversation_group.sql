-- GET CONVERSATION GROUP: locks the group that RECEIVE would take from. Never waits.
-- Takes: the queue
-- Gives: conversation_group_id (NULL: none), notices
-- Errors: 9617, 60002
-- Locks: the group, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.get_conversation_group(p_queue text)
RETURNS TABLE (conversation_group_id uuid, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET jit = off AS $$
DECLARE
    v_queue_id integer := dialoq.receivable(p_queue);
    v_group uuid;
    v_passed uuid[] := '{}';
BEGIN
    IF dialoq.is_held_back(v_queue_id) THEN
        RETURN QUERY SELECT NULL::uuid, NULL::text;
        RETURN;
    END IF;
    LOOP
        v_group := dialoq.choose(v_queue_id, 0::smallint, 9::smallint, false, v_passed);
        -- Another may have emptied it before the lock was ours.
        EXIT WHEN v_group IS NULL OR EXISTS (SELECT FROM dialoq.group_rank(v_group, v_queue_id));
        v_passed := v_passed || v_group;
    END LOOP;
    RETURN QUERY SELECT v_group, NULL::text;
END $$;
