-- BEGIN DIALOG CONVERSATION of different callers in one transaction, each in a group of its own.
-- Takes: for each the two services, the broker instance, the contract, the lifetime in seconds, all as in
--     begin_dialog_conversation, and ids of the caller's choice: handle, conversation, group
-- Gives: if all have begun, one row without an item; else for each item, from 0, whether it has begun (false: do it alone); notices in
--     the first row
-- Errors: 1205, 60005, 60026
-- Locks: the groups, which are new
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.begin_batch(
    p_from_services text[], p_to_services text[], p_broker_instances text[], p_contracts text[], p_lifetimes_s bigint[],
    p_conversation_handles uuid[], p_conversation_ids uuid[], p_conversation_group_ids uuid[])
RETURNS TABLE (item integer, is_begun boolean, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_memoize = off SET jit = off AS $$
DECLARE
    v_count integer := cardinality(p_conversation_handles);
    v_begun record;
    v_notices text;
BEGIN
    IF v_count = 0 THEN
        RETURN;
    ELSIF (v_count = ALL (ARRAY[cardinality(p_from_services), cardinality(p_to_services), cardinality(p_broker_instances),
            cardinality(p_contracts), cardinality(p_lifetimes_s), cardinality(p_conversation_ids), cardinality(p_conversation_group_ids)])
        AND 1 = ALL (ARRAY[array_ndims(p_conversation_handles), array_ndims(p_from_services), array_ndims(p_to_services),
            array_ndims(p_broker_instances), array_ndims(p_contracts), array_ndims(p_lifetimes_s), array_ndims(p_conversation_ids),
            array_ndims(p_conversation_group_ids)])
        AND 1 = ALL (ARRAY[array_lower(p_conversation_handles, 1), array_lower(p_from_services, 1), array_lower(p_to_services, 1),
            array_lower(p_broker_instances, 1), array_lower(p_contracts, 1), array_lower(p_lifetimes_s, 1),
            array_lower(p_conversation_ids, 1), array_lower(p_conversation_group_ids, 1)])) IS NOT TRUE
    THEN
        PERFORM dialoq.fail(60005, format('begin_batch was given %s handles, %s and %s services, %s broker instances, %s contracts, %s '
            'lifetimes, %s conversations and %s groups; it must be given as many of each, in arrays of one dimension that begin with 1',
            coalesce(v_count, 0), coalesce(cardinality(p_from_services), 0), coalesce(cardinality(p_to_services), 0),
            coalesce(cardinality(p_broker_instances), 0), coalesce(cardinality(p_contracts), 0),
            coalesce(cardinality(p_lifetimes_s), 0), coalesce(cardinality(p_conversation_ids), 0),
            coalesce(cardinality(p_conversation_group_ids), 0)));
    ELSIF v_count > (SELECT count(DISTINCT h.handle) FROM unnest(p_conversation_handles) AS h (handle))
        OR v_count > (SELECT count(DISTINCT g.id) FROM unnest(p_conversation_group_ids) AS g (id))
    THEN
        PERFORM dialoq.fail(60005, 'begin_batch was given a handle or a group twice, or NULL for one; each conversation needs its own');
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('transaction_read_only') = 'on' THEN
        PERFORM dialoq.check_isolation();
    END IF;
    -- Before any read: tick finds by the transaction's number whether its own reads are complete.
    PERFORM pg_current_xact_id();
    SELECT p.are_begun, p.notices INTO v_begun
    FROM dialoq.begin_plain(p_from_services, p_to_services, p_broker_instances, p_contracts, p_lifetimes_s, p_conversation_handles,
        p_conversation_ids, p_conversation_group_ids) AS p;
    v_notices := dialoq.publish_notices(v_begun.notices);
    IF true = ALL (v_begun.are_begun) THEN
        RETURN QUERY SELECT NULL::integer, true, v_notices;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT r.place::integer - 1, r.is_begun, CASE WHEN r.place = 1 THEN v_notices END
    FROM unnest(v_begun.are_begun) WITH ORDINALITY AS r (is_begun, place) ORDER BY r.place;
END $$;
