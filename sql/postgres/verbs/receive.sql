-- RECEIVE: takes messages of one conversation group out of a queue. Never waits.
-- Takes: the queue; how many at most (NULL: all of the group); the conversation or the group to take from (NULL: the best of
--     the queue that no other session holds); bounds of the level; whether age counts and not level
-- Gives: the messages in order of receipt, notices in the first
-- Errors: 8426, 8436, 9617, 60002, 60005
-- Locks: the group, without waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.receive(
    p_queue text, p_top bigint DEFAULT NULL, p_conversation_handle uuid DEFAULT NULL,
    p_conversation_group_id uuid DEFAULT NULL, p_lowest integer DEFAULT 1, p_highest integer DEFAULT 10,
    p_oldest boolean DEFAULT false)
RETURNS TABLE (
    status integer, priority integer, queuing_order bigint, conversation_group_id uuid, conversation_handle uuid,
    message_sequence_number bigint, service_name text, service_id integer, service_contract_name text,
    service_contract_id integer, message_type_name text, message_type_id integer, validation text, message_body bytea,
    message_id uuid, message_enqueue_time timestamptz, trace text, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_queue_id integer := dialoq.receivable(p_queue);
    v_group uuid;
    v_only bigint;
    v_endpoint record;
    v_passed uuid[] := '{}';
    v_is_any boolean := p_conversation_handle IS NULL AND p_conversation_group_id IS NULL;
BEGIN
    IF coalesce(p_lowest, 1) < 1 OR coalesce(p_highest, 10) NOT BETWEEN coalesce(p_lowest, 1) AND 10 THEN
        PERFORM dialoq.fail(60005, format('the range of levels is %s to %s; it must be within 1 to 10, the lower first',
            coalesce(p_lowest, 1), coalesce(p_highest, 10)));
    END IF;
    IF p_conversation_handle IS NOT NULL THEN
        SELECT e.endpoint_id, e.conversation_group_id AS group_id, e.state, s.queue_id INTO v_endpoint
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.conversation_handle = p_conversation_handle AND NOT e.is_system;
        IF NOT FOUND OR v_endpoint.state IN ('DO', 'CD') THEN
            PERFORM dialoq.fail(8426, dialoq.conversation_not_found(p_conversation_handle));
        ELSIF v_endpoint.queue_id <> v_queue_id THEN
            PERFORM dialoq.fail(8426, format(
                'conversation handle %s was not found in queue ''%s'': its service uses another queue',
                p_conversation_handle, p_queue));
        END IF;
        v_only := v_endpoint.endpoint_id;
        v_group := v_endpoint.group_id;
    ELSIF p_conversation_group_id IS NOT NULL THEN
        IF NOT EXISTS (
            SELECT FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE e.conversation_group_id = p_conversation_group_id AND s.queue_id = v_queue_id)
        THEN
            PERFORM dialoq.fail(8436, format(
                'conversation group %s of queue ''%s'' was not found: it has no conversations here',
                p_conversation_group_id, p_queue));
        END IF;
        v_group := p_conversation_group_id;
    END IF;
    IF p_top <= 0 THEN
        RETURN;
    END IF;
    LOOP
        IF v_is_any THEN
            v_group := dialoq.choose(v_queue_id, (10 - coalesce(p_highest, 10))::smallint,
                (10 - coalesce(p_lowest, 1))::smallint, p_oldest IS TRUE, v_passed);
            EXIT WHEN v_group IS NULL;
        ELSIF NOT EXISTS (
                -- An empty group is not locked.
                SELECT FROM dialoq.queue_message AS m JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
                WHERE e.conversation_group_id = v_group AND (v_only IS NULL OR e.endpoint_id = v_only)
                    AND NOT e.is_quarantined)
            OR NOT dialoq.try_lock_group(v_group)
        THEN
            RETURN;
        END IF;
        RETURN QUERY
        SELECT t.status, t.priority, t.queuing_order, t.conversation_group_id, t.conversation_handle,
            t.message_sequence_number, t.service_name, t.service_id, t.service_contract_name, t.service_contract_id,
            t.message_type_name, t.message_type_id, t.validation, t.message_body, t.message_id, t.message_enqueue_time,
            t.trace, CASE WHEN row_number() OVER () = 1 THEN dialoq.publish_notices(t.notices) END
        FROM dialoq.take(v_group, v_queue_id, p_top, v_only) AS t;
        -- Another transaction may have emptied it before the lock was taken.
        EXIT WHEN FOUND OR NOT v_is_any;
        v_passed := v_passed || v_group;
    END LOOP;
END $$;
