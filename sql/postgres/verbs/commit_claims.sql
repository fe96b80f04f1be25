-- Commits transactions of different callers that have only claimed messages: takes the messages out of their queues. All or
-- none; the claims end with the call, also if it fails.
-- Takes: for each claim of this session its group, the endpoint, the queuing_order of its first and its last message, how many
-- Gives: notices
-- Errors: 1205 if the session does not hold a claim, or a message is gone; 60005; 60026; 55P03 if another session has locked a message
-- Locks: none but those of the claims
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.commit_claims(
    p_groups uuid[], p_endpoints bigint[], p_firsts bigint[], p_lasts bigint[], p_counts integer[])
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET client_min_messages = error
-- Nothing here waits, unless a member takes claimed messages in plain SQL (take_claim).
SET lock_timeout = '1s'
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    IF NOT dialoq.is_read_committed() THEN
        PERFORM dialoq.check_isolation();
    END IF;
    IF (dialoq.is_column(p_endpoints, cardinality(p_groups)) AND dialoq.is_column(p_firsts, cardinality(p_groups))
        AND dialoq.is_column(p_lasts, cardinality(p_groups)) AND dialoq.is_column(p_counts, cardinality(p_groups))) IS NOT TRUE
    THEN
        PERFORM dialoq.refuse_columns('commit_claims');
    END IF;
    -- The locks become the transaction's, so they are free when the messages are gone.
    IF (
        SELECT bool_and(pg_try_advisory_xact_lock_shared(dialoq.group_key(g.id))
            AND pg_try_advisory_xact_lock(dialoq.claim_key(g.id))
            AND pg_advisory_unlock(dialoq.claim_key(g.id)) AND pg_advisory_unlock_shared(dialoq.group_key(g.id)))
        FROM unnest(p_groups) AS g (id)) IS NOT TRUE
    THEN
        PERFORM dialoq.fail(1205, 'this session does not hold the claims that it was asked to commit; the transactions were rolled '
            'back, run them again');
    END IF;
    RETURN QUERY SELECT dialoq.publish_notices(dialoq.take_claimed(p_groups, p_endpoints, p_firsts, p_lasts, p_counts));
END $$;
