-- END CONVERSATION of different callers in one transaction, without an error and without cleanup.
-- Takes: the handles
-- Gives: for each item, from 0, the two letters of the endpoint's state before (NULL: it was left as it is, do it alone); notices in the
--     first row
-- Errors: 1205, 60005, 60026
-- Locks: the groups of the conversations, without waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.end_batch(p_conversation_handles uuid[])
RETURNS TABLE (item integer, state text, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_memoize = off SET jit = off AS $$
DECLARE
    v_ended record;
    v_notices text;
BEGIN
    IF cardinality(p_conversation_handles) = 0 THEN
        RETURN;
    ELSIF (array_ndims(p_conversation_handles) = 1 AND array_lower(p_conversation_handles, 1) = 1) IS NOT TRUE THEN
        PERFORM dialoq.fail(60005, format('the handles of end_batch are %s; give an array of one dimension that begins with 1',
            coalesce('an array of ' || array_dims(p_conversation_handles), 'NULL')));
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('transaction_read_only') = 'on' THEN
        PERFORM dialoq.check_isolation();
    END IF;
    -- Before any read: tick finds by the transaction's number whether its own reads are complete.
    PERFORM pg_current_xact_id();
    SELECT p.states, p.notices INTO v_ended FROM dialoq.end_plain(p_conversation_handles) AS p;
    v_notices := dialoq.publish_notices(v_ended.notices);
    RETURN QUERY
    SELECT r.place::integer - 1, r.state, CASE WHEN r.place = 1 THEN v_notices END
    FROM unnest(v_ended.states) WITH ORDINALITY AS r (state, place) ORDER BY r.place;
END $$;
