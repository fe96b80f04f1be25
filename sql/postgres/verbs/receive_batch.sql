-- RECEIVEs of different callers from one queue in one transaction. Never waits. Callers share out the groups of the best
-- level, the oldest first; a group goes to several callers if there are fewer groups than callers.
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
    v_retains boolean;
    -- The callers that have nothing yet, and how much each wants.
    v_items integer[];
    v_tops bigint[];
    v_from_top smallint := 0;
    v_top smallint;
    v_groups uuid[];
    v_passed uuid[] := '{}';
    v_held tid[];
    -- The groups that have more than is taken.
    v_rest uuid[];
    v_row record;
    v_endpoints bigint[];
    v_stored smallint[];
    v_orders bigint[];
    v_takers integer[];
    v_said text;
BEGIN
    SELECT array_agg(t.place - 1 ORDER BY t.place), array_agg(t.top ORDER BY t.place) INTO v_items, v_tops
    FROM unnest(p_tops) WITH ORDINALITY AS t (top, place) WHERE t.top IS NULL OR t.top > 0;
    SELECT q.is_retention_enabled INTO v_retains FROM dialoq.service_queue AS q WHERE q.queue_id = v_queue_id;
    PERFORM dialoq.forget_rollbacks(v_queue_id);
    WHILE cardinality(v_items) > 0 LOOP
        v_top := (
            SELECT r.below_top FROM dialoq.ready_group AS r
            WHERE r.queue_id = v_queue_id AND r.below_top >= v_from_top
            ORDER BY r.below_top, r.oldest LIMIT 1);
        EXIT WHEN v_top IS NULL;
        IF v_top > v_from_top THEN
            v_from_top := v_top;
            v_passed := '{}';
        END IF;
        -- The oldest groups of the level that nobody else holds, each once.
        v_groups := ARRAY(
            SELECT c.group_id
            FROM (
                SELECT r.conversation_group_id AS group_id FROM dialoq.ready_group AS r
                WHERE r.queue_id = v_queue_id AND r.below_top = v_top
                ORDER BY r.below_top, r.oldest
            ) AS c
            WHERE NOT c.group_id = ANY (v_passed) AND pg_try_advisory_xact_lock(dialoq.group_key(c.group_id))
            LIMIT cardinality(v_items));
        IF cardinality(v_groups) = 0 THEN
            EXIT WHEN v_top = 9;
            v_from_top := v_top + 1;
            v_passed := '{}';
            CONTINUE;
        END IF;
        v_groups := ARRAY(
            SELECT g.id FROM unnest(v_groups) WITH ORDINALITY AS g (id, place) GROUP BY g.id ORDER BY min(g.place));
        v_held := ARRAY(
            SELECT r.ctid FROM dialoq.ready_group AS r WHERE r.conversation_group_id = ANY (v_groups) FOR UPDATE SKIP LOCKED);
        -- Those that were told something take note of it first.
        FOR v_row IN
            SELECT e.endpoint_id
            FROM dialoq.conversation_endpoint AS e
            WHERE e.conversation_group_id = ANY (v_groups)
                AND (e.rollbacks <> 0 OR e.due_at <= clock_timestamp() OR e.due_at <= (SELECT b.manual_now FROM dialoq.broker AS b)
                    OR e.state IN ('CO', 'DI', 'SO') AND (
                        EXISTS (SELECT FROM dialoq.queue_message AS m WHERE m.endpoint_id = e.endpoint_id AND m.stored = 1)
                        OR e.state = 'CO' AND (
                            SELECT m.message_type_id FROM dialoq.queue_message AS m
                            WHERE m.endpoint_id = e.endpoint_id AND m.stored = 0
                            ORDER BY m.queuing_order DESC LIMIT 1) = 2))
        LOOP
            UPDATE dialoq.conversation_endpoint AS e SET rollbacks = 0 WHERE e.endpoint_id = v_row.endpoint_id AND e.rollbacks <> 0;
            v_said := concat_ws(' ', v_said, dialoq.absorb(v_row.endpoint_id));
        END LOOP;
        WITH allotted AS MATERIALIZED (
            SELECT i.item, v_groups[(i.place - 1) % cardinality(v_groups) + 1] AS group_id,
                sum(least(i.top, 1000000000000)) OVER (
                    PARTITION BY (i.place - 1) % cardinality(v_groups) ORDER BY i.place)::bigint AS up_to
            FROM unnest(v_items, v_tops) WITH ORDINALITY AS i (item, top, place)
        ), quota AS MATERIALIZED (
            SELECT a.group_id, max(a.up_to) AS most, array_agg(a.item ORDER BY a.up_to) AS items,
                array_agg(a.up_to ORDER BY a.up_to) AS limits
            FROM allotted AS a GROUP BY a.group_id
        ), seen AS MATERIALIZED (
            SELECT q.group_id, q.items, q.limits, e.endpoint_id, m.stored, m.queuing_order, row_number() OVER w AS place,
                -- A group whose row said better than is true waits for its level.
                row_number() OVER w <= q.most AND 10 - first_value(e.priority) OVER w <= v_top AS is_taken
            FROM quota AS q
            JOIN dialoq.conversation_endpoint AS e ON e.conversation_group_id = q.group_id
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            CROSS JOIN LATERAL (
                SELECT n.stored, n.queuing_order FROM dialoq.queue_message AS n
                WHERE n.endpoint_id = e.endpoint_id
                ORDER BY n.stored DESC, n.queuing_order
                LIMIT q.most + 1
            ) AS m
            WHERE NOT e.is_quarantined AND e.state NOT IN ('DO', 'CD') AND s.queue_id = v_queue_id
            WINDOW w AS (
                PARTITION BY q.group_id ORDER BY e.priority DESC, e.conversation_handle, m.stored DESC, m.queuing_order)
        ), taken AS MATERIALIZED (
            SELECT s.endpoint_id, s.stored, s.queuing_order, s.place,
                CASE WHEN cardinality(s.items) = 1 THEN s.items[1] ELSE (
                    SELECT i.item FROM unnest(s.items, s.limits) AS i (item, up_to) WHERE i.up_to >= s.place LIMIT 1) END AS item
            FROM seen AS s
            WHERE s.is_taken
        ), ordered AS MATERIALIZED (
            SELECT t.* FROM taken AS t ORDER BY t.item, t.place
        )
        SELECT array_agg(t.endpoint_id), array_agg(t.stored), array_agg(t.queuing_order), array_agg(t.item),
            (SELECT array_agg(r.group_id) FROM (
                SELECT s.group_id FROM seen AS s WHERE NOT s.is_taken
                UNION
                -- Its service may have gone to another queue before the lock was ours.
                SELECT u.group_id
                FROM (SELECT g.id AS group_id FROM unnest(v_groups) AS g (id) EXCEPT SELECT s.group_id FROM seen AS s) AS u
                WHERE EXISTS (
                    SELECT FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
                    WHERE e.conversation_group_id = u.group_id AND s.queue_id <> v_queue_id)
            ) AS r)
        INTO v_endpoints, v_stored, v_orders, v_takers, v_rest
        FROM ordered AS t;
        IF v_retains AND v_orders IS NOT NULL THEN
            INSERT INTO dialoq.retained_message (
                endpoint_id, queuing_order, status, stored, sequence, message_type_id, message_id, enqueued_at, body, trace)
            SELECT m.endpoint_id, m.queuing_order, 0, m.stored, m.sequence, m.message_type_id, m.message_id, m.enqueued_at,
                m.body, m.trace
            FROM unnest(v_endpoints, v_stored, v_orders) AS t (endpoint_id, stored, queuing_order)
            JOIN dialoq.queue_message AS m
                ON m.endpoint_id = t.endpoint_id AND m.stored = t.stored AND m.queuing_order = t.queuing_order;
        END IF;
        v_said := dialoq.say(concat_ws(' ', v_said, CASE WHEN v_rest IS NOT NULL THEN 'q:' || v_queue_id END));
        RETURN QUERY
        WITH gone AS (
            DELETE FROM dialoq.queue_message AS m
            USING unnest(v_endpoints, v_stored, v_orders, v_takers)
                WITH ORDINALITY AS t (endpoint_id, stored, queuing_order, item, place)
            WHERE m.endpoint_id = t.endpoint_id AND m.stored = t.stored AND m.queuing_order = t.queuing_order
            RETURNING t.item, t.place, m.*
        )
        SELECT g.item, 1, e.priority::integer, g.queuing_order, e.conversation_group_id, e.conversation_handle,
            g.sequence, s.name, e.service_id, c.name, e.service_contract_id, t.name, g.message_type_id,
            CASE t.validation WHEN 'V' THEN 'X' WHEN 'S' THEN 'J' ELSE t.validation END, g.body,
            g.message_id, g.enqueued_at, g.trace, CASE WHEN g.place = 1 THEN v_said END
        FROM gone AS g
        JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = g.endpoint_id
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
        JOIN dialoq.message_type AS t ON t.message_type_id = g.message_type_id
        ORDER BY g.place;
        v_said := NULL;
        DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (v_held);
        IF v_rest IS NOT NULL THEN
            INSERT INTO dialoq.ready_group (queue_id, below_top, oldest, conversation_group_id)
            SELECT k.queue_id, k.below_top, k.oldest, k.group_id FROM dialoq.group_ranks(v_rest) AS k;
        END IF;
        IF v_orders IS NULL THEN
            -- Another had emptied them before the locks were ours, or their level is a lower one.
            v_passed := v_passed || v_groups;
        ELSE
            SELECT array_agg(i.item ORDER BY i.place), array_agg(i.top ORDER BY i.place) INTO v_items, v_tops
            FROM unnest(v_items, v_tops) WITH ORDINALITY AS i (item, top, place)
            WHERE NOT i.item = ANY (v_takers);
        END IF;
    END LOOP;
END $$;
