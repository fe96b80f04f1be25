-- Takes claimed messages in an open transaction of another session: the transaction of the claim does more than RECEIVE. The
-- lock of the group is shared with the claiming session at first. When that session has released its claim, the caller
-- takes the lock alone (transaction/hold_group.sql).
-- Takes: the group, the endpoint, the queuing_order of the first and the last message, how many
-- Gives: notices
-- Errors: 1205 if the group is not claimed any more, or a message is gone
-- Locks: the group, shared, without waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.take_claim(
    p_group uuid, p_endpoint_id bigint, p_first bigint, p_last bigint, p_count integer)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    PERFORM dialoq.check_isolation();
    IF NOT pg_try_advisory_xact_lock_shared(dialoq.group_key(p_group)) THEN
        PERFORM dialoq.fail(1205, format('another session holds conversation group %s, or waits for it, whose messages this '
            'transaction has received; the transaction was rolled back, run it again', p_group));
    END IF;
    RETURN QUERY SELECT dialoq.publish_notices(dialoq.take_claimed(
        ARRAY[p_group], ARRAY[p_endpoint_id], ARRAY[p_first], ARRAY[p_last], ARRAY[p_count]));
END $$;
