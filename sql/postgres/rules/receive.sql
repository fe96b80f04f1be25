-- Taking the messages of a chosen group.
-- Takes, Gives, Errors, Locks: see each function

-- Takes messages of a group that is locked: its conversations by level downwards, then by handle; of each the timers, the
-- errors, then in sequence. Corrects the group's rows of ready_group.
-- Takes: the group, its queue, how many at most (NULL: all), the one conversation to take from (NULL: all)
-- Gives: the messages in order of receipt
CREATE OR REPLACE FUNCTION dialoq.take(p_group uuid, p_queue_id integer, p_limit bigint, p_only bigint)
RETURNS TABLE (
    status integer, priority integer, queuing_order bigint, conversation_group_id uuid, conversation_handle uuid,
    message_sequence_number bigint, service_name text, service_id integer, service_contract_name text,
    service_contract_id integer, message_type_name text, message_type_id integer, validation text, message_body bytea,
    message_id uuid, message_enqueue_time timestamptz, trace text, notices text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_held tid[] := ARRAY(
        SELECT r.ctid FROM dialoq.ready_group AS r
        WHERE r.conversation_group_id <= p_group AND (r.conversation_group_id, r.generation) >= (p_group, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1))
        FOR UPDATE SKIP LOCKED);
    v_left bigint := least(p_limit, 1000000000000);
    v_retains boolean;
    v_row record;
    v_rows tid[];
    v_notices text;
    v_is_more boolean := p_only IS NOT NULL;
BEGIN
    SELECT q.is_retention_enabled INTO v_retains FROM dialoq.service_queue AS q WHERE q.queue_id = p_queue_id;
    FOR v_row IN
        SELECT e.endpoint_id, e.rollbacks, dialoq.has_pending(e) AS has_pending, e.moved_recheck_id
        FROM dialoq.conversation_endpoint AS e
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        -- Messages that came to a side as it ended are left to the recheck. Taken here they used up the count, and the answer was empty.
        WHERE e.conversation_group_id = p_group AND NOT e.is_quarantined AND e.state NOT IN ('DO', 'CD') AND s.queue_id = p_queue_id
            AND (p_only IS NULL OR e.endpoint_id = p_only)
        ORDER BY e.priority DESC, e.conversation_handle
    LOOP
        IF v_left <= 0 THEN
            v_is_more := true;
            EXIT;
        END IF;
        IF v_row.has_pending THEN
            v_notices := concat_ws(' ', v_notices, dialoq.apply_pending(v_row.endpoint_id));
        END IF;
        v_rows := ARRAY(
            SELECT o.row
            FROM (
                (SELECT m.ctid AS row, m.delivery_class, m.queuing_order FROM dialoq.queue_message AS m
                WHERE m.endpoint_id = v_row.endpoint_id AND m.delivery_class >= 1
                ORDER BY m.delivery_class DESC, m.queuing_order
                LIMIT v_left + 1)
                UNION ALL
                -- No message of the group is older than its rows. Older ones that were received may stay for an old snapshot.
                (SELECT m.ctid, m.delivery_class, m.queuing_order FROM dialoq.queue_message AS m
                WHERE m.endpoint_id = v_row.endpoint_id AND m.delivery_class = 0 AND m.queuing_order >= CASE WHEN v_row.moved_recheck_id IS NULL THEN (
                    SELECT coalesce(min(r.oldest), 0) FROM dialoq.ready_group AS r
                    WHERE r.conversation_group_id <= p_group
                        AND (r.conversation_group_id, r.generation) >= (p_group, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)))
                    ELSE 0 END
                ORDER BY m.queuing_order
                LIMIT v_left + 1)
            ) AS o
            ORDER BY o.delivery_class DESC, o.queuing_order
            LIMIT v_left + 1);
        CONTINUE WHEN cardinality(v_rows) = 0;
        IF cardinality(v_rows) > v_left THEN
            v_is_more := true;
            v_rows := trim_array(v_rows, 1);
        END IF;
        v_left := v_left - cardinality(v_rows);
        IF v_row.rollbacks <> 0 THEN
            -- The count is that of the group. If this transaction rolls back, so does this, and it is counted again.
            UPDATE dialoq.conversation_endpoint AS e SET rollbacks = 0
            WHERE e.conversation_group_id = p_group AND e.rollbacks <> 0;
        END IF;
        IF v_retains THEN
            PERFORM dialoq.retain_received(v_rows);
        END IF;
        RETURN QUERY
        WITH gone AS (
            DELETE FROM dialoq.queue_message AS m WHERE m.ctid = ANY (v_rows) RETURNING m.*
        )
        SELECT 1, e.priority::integer, g.queuing_order, e.conversation_group_id, e.conversation_handle,
            g.sequence, n.service, e.service_id, n.contract, e.service_contract_id, n.message_type, g.message_type_id,
            n.validation, g.body,
            g.message_id, g.enqueued_at, g.trace,
            concat_ws(' ', v_notices, CASE WHEN v_is_more THEN 'q:' || p_queue_id::text END)
        FROM gone AS g
        JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = v_row.endpoint_id
        CROSS JOIN LATERAL dialoq.message_names(e.service_id, e.service_contract_id, g.message_type_id) AS n
        ORDER BY g.delivery_class DESC, g.queuing_order;
    END LOOP;
    -- If no endpoint was found, the service may have moved to another queue before the lock was taken.
    v_is_more := v_is_more OR NOT FOUND;
    IF v_left < least(p_limit, 1000000000000) THEN
        PERFORM dialoq.forget_rollbacks(p_queue_id);
    END IF;
    IF v_is_more THEN
        PERFORM dialoq.rebuild_ready_rows(p_group, true);
    ELSE
        -- All messages visible after the rows were locked were taken.
        DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (v_held);
    END IF;
END $$;

-- The names that a RECEIVE shows of a message, and the validation of its type: X for XML with a schema too, J for JSON with a
-- schema too.
CREATE OR REPLACE FUNCTION dialoq.message_names(p_service_id integer, p_service_contract_id integer, p_message_type_id integer)
RETURNS TABLE (service text, contract text, message_type text, validation text)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT s.name, c.name, t.name, CASE t.validation WHEN 'V' THEN 'X' WHEN 'S' THEN 'J' ELSE t.validation END
    FROM (SELECT v.name FROM dialoq.service AS v WHERE v.service_id = p_service_id OFFSET 0) AS s
    CROSS JOIN (SELECT v.name FROM dialoq.service_contract AS v WHERE v.service_contract_id = p_service_contract_id OFFSET 0) AS c
    CROSS JOIN (
        SELECT v.name, v.validation FROM dialoq.message_type AS v WHERE v.message_type_id = p_message_type_id OFFSET 0) AS t
$$;
