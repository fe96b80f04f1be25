-- SENDs of different callers in one transaction. One that is refused leaves the others alone and writes nothing.
-- Takes: for each its handle, message type (NULL is DEFAULT), body, trace context, what its caller found wrong with the body
--     and message id; the version of the definitions they looked with
-- Gives: for each item, from 0: error_number (NULL: sent; -1: another transaction holds the group, do it alone),
--     error_message; said in the first row
-- Errors: 60033
-- Locks: the groups of the conversations, without waiting
CREATE OR REPLACE FUNCTION dialoq.send_batch(
    p_conversation_handles uuid[], p_message_type_names text[], p_message_bodies bytea[], p_traces text[],
    p_body_faults text[], p_message_ids uuid[], p_catalog_version bigint DEFAULT NULL)
RETURNS TABLE (item integer, error_number integer, error_message text, said text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dialoq, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count integer := cardinality(p_conversation_handles);
    v_now timestamptz;
    v_version bigint;
    v_is_enabled boolean;
    v_endpoints bigint[];
    v_types integer[];
    v_plain integer[];
    v_others integer[];
    v_groups uuid[];
    v_queues integer[];
    v_tops smallint[];
    v_oldest bigint[];
    v_row record;
    v_lock record;
    v_sent record;
    v_said text;
    v_errors integer[] := array_fill(NULL::integer, ARRAY[v_count]);
    v_texts text[] := array_fill(NULL::text, ARRAY[v_count]);
BEGIN
    SELECT coalesce(b.manual_now, clock_timestamp()), b.is_broker_enabled, b.catalog_version
    INTO v_now, v_is_enabled, v_version
    FROM dialoq.broker AS b;
    IF v_version <> p_catalog_version THEN
        PERFORM dialoq.check_catalog_version(p_catalog_version);
    END IF;
    -- The conversations whose groups nobody else holds. What is read of them before the locks may be old.
    v_endpoints := ARRAY(
        SELECT c.endpoint_id
        FROM (
            SELECT e.endpoint_id, e.conversation_group_id AS group_id
            FROM (SELECT DISTINCT u.handle FROM unnest(p_conversation_handles) AS u (handle)) AS h
            JOIN dialoq.conversation_endpoint AS e ON e.conversation_handle = h.handle
            OFFSET 0
        ) AS c
        WHERE dialoq.try_lock_group(c.group_id));
    -- The plain ones: a conversation that both sides speak on, with nothing before its messages and nothing wrong with them.
    -- If one message of a conversation is not plain, none of it is.
    IF v_is_enabled THEN
        WITH input AS MATERIALIZED (
            SELECT i.place, i.handle, coalesce(i.type_name, 'DEFAULT') AS type_name, i.fault
            FROM unnest(p_conversation_handles, p_message_type_names, p_body_faults)
                WITH ORDINALITY AS i (handle, type_name, fault, place)
        ), own AS MATERIALIZED (
            SELECT e.endpoint_id, e.conversation_handle AS handle, e.send_sequence, e.service_contract_id, e.is_initiator,
                p.endpoint_id AS peer_id, p.conversation_group_id AS peer_group, (10 - p.priority)::smallint AS below_top,
                q.queue_id
            FROM unnest(v_endpoints) AS l (endpoint_id)
            JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = l.endpoint_id
            JOIN dialoq.service AS os ON os.service_id = e.service_id
            JOIN dialoq.service_queue AS oq ON oq.queue_id = os.queue_id AND NOT oq.is_retention_enabled
            JOIN dialoq.conversation_endpoint AS p
                ON p.conversation_id = e.conversation_id AND p.is_initiator = NOT e.is_initiator
            JOIN dialoq.service AS s ON s.service_id = p.service_id
            JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id AND q.is_enqueue_enabled
            WHERE e.state = 'CO' AND p.state = 'CO' AND NOT e.is_system AND NOT p.is_system
                AND (e.due_at IS NULL OR e.due_at > v_now)
                AND NOT EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = e.endpoint_id)
                AND NOT EXISTS (
                    SELECT FROM dialoq.queue_message AS m WHERE m.endpoint_id = e.endpoint_id AND m.stored = 1)
                AND NOT EXISTS (
                    SELECT FROM dialoq.queue_message AS m WHERE m.endpoint_id = p.endpoint_id AND m.stored = 1)
                AND coalesce((
                    SELECT m.message_type_id FROM dialoq.queue_message AS m
                    WHERE m.endpoint_id = e.endpoint_id AND m.stored = 0
                    ORDER BY m.queuing_order DESC LIMIT 1) <> 2, true)
        ), plain AS MATERIALIZED (
            SELECT i.place, i.handle, i.type_name, o.endpoint_id, o.send_sequence, o.peer_id, o.peer_group, o.below_top,
                o.queue_id, t.message_type_id,
                bool_and(t.message_type_id IS NOT NULL) OVER (PARTITION BY i.handle) AS is_plain,
                row_number() OVER (PARTITION BY i.handle ORDER BY i.place) - 1 AS behind
            FROM input AS i
            JOIN own AS o ON o.handle = i.handle
            LEFT JOIN LATERAL (
                SELECT y.message_type_id
                FROM dialoq.message_type AS y
                JOIN dialoq.service_contract_message_usage AS u
                    ON u.service_contract_id = o.service_contract_id AND u.message_type = y.name
                WHERE y.name = i.type_name AND NOT y.is_dropped
                    AND (i.fault = '' OR i.fault IS NULL AND y.validation = 'N')
                    AND CASE WHEN o.is_initiator THEN u.is_sent_by_initiator ELSE u.is_sent_by_target END
            ) AS t ON true
        ), sent AS (
            INSERT INTO dialoq.queue_message (
                endpoint_id, stored, sequence, message_type_id, message_id, enqueued_at, body, trace)
            SELECT p.peer_id, 0, p.send_sequence + p.behind, p.message_type_id,
                coalesce(p_message_ids[p.place], gen_random_uuid()), v_now,
                CASE WHEN length(p_message_bodies[p.place]) > 0 THEN p_message_bodies[p.place] END, p_traces[p.place]
            FROM plain AS p
            WHERE p.is_plain
            ORDER BY p.place
            RETURNING endpoint_id, queuing_order
        ), counted AS (
            UPDATE dialoq.conversation_endpoint AS e SET send_sequence = n.send_sequence + n.behind + 1
            FROM (
                SELECT p.endpoint_id, p.send_sequence, max(p.behind) AS behind
                FROM plain AS p WHERE p.is_plain GROUP BY p.endpoint_id, p.send_sequence
            ) AS n
            WHERE e.endpoint_id = n.endpoint_id
        ), arrived AS (
            SELECT o.peer_group, o.queue_id, o.below_top, min(s.queuing_order) AS oldest
            FROM sent AS s JOIN own AS o ON o.peer_id = s.endpoint_id
            GROUP BY o.peer_group, o.queue_id, o.below_top
        )
        SELECT (SELECT array_agg(p.place::integer) FROM plain AS p WHERE p.is_plain),
            array_agg(a.peer_group), array_agg(a.queue_id), array_agg(a.below_top), array_agg(a.oldest)
        INTO v_plain, v_groups, v_queues, v_tops, v_oldest
        FROM arrived AS a;
        -- As add_ready, for all of them.
        WITH arrived AS MATERIALIZED (
            SELECT a.* FROM unnest(v_groups, v_queues, v_tops, v_oldest)
                WITH ORDINALITY AS a (group_id, queue_id, below_top, oldest, place)
        ), kept AS MATERIALIZED (
            SELECT a.place
            FROM arrived AS a
            CROSS JOIN LATERAL (
                SELECT FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id = a.group_id AND r.queue_id + 0 = a.queue_id
                    AND r.below_top + 0 = a.below_top AND r.oldest + 0 <= a.oldest
                LIMIT 1
                FOR KEY SHARE SKIP LOCKED
            ) AS k
        )
        INSERT INTO dialoq.ready_group (queue_id, below_top, oldest, conversation_group_id)
        SELECT a.queue_id, a.below_top, least(a.oldest, (
                SELECT min(r.oldest) FROM dialoq.ready_group AS r WHERE r.conversation_group_id = a.group_id)), a.group_id
        FROM arrived AS a
        WHERE NOT EXISTS (SELECT FROM kept AS k WHERE k.place = a.place);
        SELECT string_agg(DISTINCT 'q:' || q.id, ' ') INTO v_said FROM unnest(v_queues) AS q (id);
    END IF;
    FOR v_row IN
        SELECT i.place, i.handle, coalesce(i.type_name, 'DEFAULT') AS type_name, t.message_type_id,
            CASE WHEN length(i.body) > 0 THEN i.body END AS body, i.trace, i.fault, coalesce(i.id, gen_random_uuid()) AS id,
            -- Not tried again: an earlier message of the conversation may have met the lock.
            (SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e
                WHERE e.conversation_handle = i.handle AND NOT e.is_system) <> ALL (v_endpoints) AS is_held
        FROM unnest(p_conversation_handles, p_message_type_names, p_message_bodies, p_traces, p_body_faults, p_message_ids)
            WITH ORDINALITY AS i (handle, type_name, body, trace, fault, id, place)
        LEFT JOIN dialoq.message_type AS t ON t.name = coalesce(i.type_name, 'DEFAULT') AND NOT t.is_dropped
        WHERE v_plain IS NULL OR NOT i.place = ANY (v_plain)
        ORDER BY i.place
    LOOP
        IF v_row.is_held AND v_row.message_type_id IS NOT NULL THEN
            v_errors[v_row.place] := -1;
            CONTINUE;
        END IF;
        SELECT * INTO v_lock FROM dialoq.lock_handle(v_row.handle, false);
        v_said := concat_ws(' ', v_said, v_lock.said);
        IF v_lock.endpoint_id IS NULL THEN
            v_errors[v_row.place] := 8426;
            v_texts[v_row.place] := format(
                'conversation handle %s was not found: it was never begun here, or it has ended', v_row.handle);
        ELSIF v_row.message_type_id IS NULL THEN
            v_errors[v_row.place] := 8428;
            v_texts[v_row.place] := format(
                'message type ''%s'' was not found; names are compared byte by byte', v_row.type_name);
        ELSIF v_lock.endpoint_id = -1 THEN
            v_errors[v_row.place] := -1;
        ELSE
            SELECT * INTO v_sent FROM dialoq.send_from(v_lock.endpoint_id, v_row.message_type_id, v_row.type_name,
                v_row.body, v_row.trace, coalesce(v_row.fault, dialoq.body_fault(v_row.message_type_id, v_row.body)), v_row.id);
            v_errors[v_row.place] := v_sent.error_number;
            v_texts[v_row.place] := v_sent.error_message;
            v_said := concat_ws(' ', v_said, v_sent.said);
        END IF;
    END LOOP;
    v_said := dialoq.say(v_said);
    RETURN QUERY
    SELECT r.place::integer - 1, r.number, r.message, CASE WHEN r.place = 1 THEN v_said END
    FROM unnest(v_errors, v_texts) WITH ORDINALITY AS r (number, message, place)
    ORDER BY r.place;
END $$;
