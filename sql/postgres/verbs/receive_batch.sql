-- RECEIVEs of different callers from one queue in one transaction, one after the other. Never waits.
-- Takes: the queue; for each how many at most (NULL: all of the group)
-- Gives: for each item, from 0, its messages in order of receipt; none for one that got nothing
-- Errors: 9617, 60002
-- Locks: the groups, without waiting
CREATE OR REPLACE FUNCTION dialoq.receive_batch(p_queue text, p_tops bigint[])
RETURNS TABLE (
    item integer, status integer, priority integer, queuing_order bigint, conversation_group_id uuid,
    conversation_handle uuid, message_sequence_number bigint, service_name text, service_id integer,
    service_contract_name text, service_contract_id integer, message_type_name text, message_type_id integer,
    validation text, message_body bytea, message_id uuid, message_enqueue_time timestamptz, trace text, said text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dialoq, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_queue_id integer := dialoq.receivable(p_queue);
    v_item integer := 0;
    v_group uuid;
    v_passed uuid[] := '{}';
    v_said text;
BEGIN
    UPDATE dialoq.service_queue AS q SET rollbacks = 0 WHERE q.queue_id = v_queue_id AND q.rollbacks <> 0;
    WHILE v_item < cardinality(p_tops) LOOP
        IF p_tops[v_item + 1] <= 0 THEN
            v_item := v_item + 1;
            CONTINUE;
        END IF;
        v_group := dialoq.choose(v_queue_id, 0::smallint, 9::smallint, false, v_passed);
        EXIT WHEN v_group IS NULL;
        IF EXISTS (SELECT FROM dialoq.receive_attempt AS a WHERE a.conversation_group_id = v_group AND a.is_over) THEN
            v_said := concat_ws(' ', v_said, dialoq.count_gone_attempts(v_group));
            EXIT WHEN NOT (SELECT q.is_receive_enabled FROM dialoq.service_queue AS q WHERE q.queue_id = v_queue_id);
        END IF;
        RETURN QUERY
        SELECT v_item, t.status, t.priority, t.queuing_order, t.conversation_group_id, t.conversation_handle,
            t.message_sequence_number, t.service_name, t.service_id, t.service_contract_name, t.service_contract_id,
            t.message_type_name, t.message_type_id, t.validation, t.message_body, t.message_id, t.message_enqueue_time,
            t.trace, dialoq.say(concat_ws(' ', v_said, t.said))
        FROM dialoq.take(v_group, v_queue_id, p_tops[v_item + 1], NULL) AS t;
        IF FOUND THEN
            v_item := v_item + 1;
        ELSE
            -- Another emptied it before the lock was ours.
            v_passed := v_passed || v_group;
        END IF;
    END LOOP;
END $$;
