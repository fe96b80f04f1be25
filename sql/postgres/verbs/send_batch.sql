-- SENDs of different callers in one transaction. One that is refused leaves the others alone and writes nothing.
-- Takes: for each its handle, message type (NULL is DEFAULT), body, trace context, the fault that its caller found in the
--     body, and message id; the version of the definitions the bodies were checked with; whether they are one caller's, and arrive in
--     the order of the list also if they are on different conversations
-- Gives: if all were sent, one row without an error_number; else for each item, from 0: error_number (NULL: sent; -1: another
--     transaction holds the group, do it alone), error_message; notices in the first row
-- Errors: 1205, 8459, 60005, 60026, 60033; of an item also those of send
-- Locks: the groups of the conversations, without waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.send_batch(
    p_conversation_handles uuid[], p_message_type_names text[], p_message_bodies bytea[], p_traces text[],
    p_body_faults text[], p_message_ids uuid[], p_catalog_version bigint DEFAULT NULL, p_is_ordered boolean DEFAULT false)
RETURNS TABLE (item integer, error_number integer, error_message text, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_memoize = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count integer := cardinality(p_conversation_handles);
    v_now timestamptz;
    v_version bigint;
    v_is_enabled boolean;
    v_floor bigint;
    v_asks_each boolean;
    v_latest bigint;
    v_keeps_locks boolean := coalesce(current_setting('dialoq.session_locks', true) = '1', false);
    -- By place: the endpoint of the handle, NULL if there is none, and what of it never changes.
    v_endpoints bigint[];
    v_services integer[];
    v_contracts integer[];
    v_initiators boolean[];
    v_type_names text[];
    -- Its group, and whether this transaction holds it; how many messages of the same conversation come before.
    v_groups uuid[];
    v_are_ours boolean[];
    v_behind bigint[];
    -- The message type if the conversation may send it, nothing is wrong with the body and no copy is to be kept.
    v_type_ids integer[];
    -- How many endpoints the short way has counted on.
    v_counted bigint;
    -- The plain messages.
    v_places integer[];
    v_rows tid[];
    v_peers bigint[];
    v_sequences bigint[];
    v_types integer[];
    v_peer_groups uuid[];
    v_peer_services integer[];
    v_queues integer[];
    v_tops smallint[];
    v_orders bigint[];
    -- The first messages of conversations, whose other side is made here.
    v_firsts integer[] := '{}';
    v_possible integer[];
    v_row record;
    v_lock record;
    v_sent record;
    v_notices text;
    -- Conversations with a message that is not sent because another transaction holds the group. Their later messages must not
    -- overtake it.
    v_held uuid[] := '{}';
    v_errors integer[];
    v_texts text[];
BEGIN
    IF v_count = 0 THEN
        RETURN;
    ELSIF (v_count = ALL (ARRAY[cardinality(p_message_type_names), cardinality(p_message_bodies), cardinality(p_traces),
            cardinality(p_body_faults), cardinality(p_message_ids)])
        AND 1 = ALL (ARRAY[array_ndims(p_conversation_handles), array_ndims(p_message_type_names),
            array_ndims(p_message_bodies), array_ndims(p_traces), array_ndims(p_body_faults), array_ndims(p_message_ids)])
        AND 1 = ALL (ARRAY[array_lower(p_conversation_handles, 1), array_lower(p_message_type_names, 1),
            array_lower(p_message_bodies, 1), array_lower(p_traces, 1), array_lower(p_body_faults, 1),
            array_lower(p_message_ids, 1)])) IS NOT TRUE
    THEN
        PERFORM dialoq.fail(60005, format('send_batch was given %s handles, %s message types, %s bodies, %s traces, %s '
            'verdicts and %s ids; it must be given as many of each, in arrays of one dimension that begin with 1',
            coalesce(v_count, 0), coalesce(cardinality(p_message_type_names), 0), coalesce(cardinality(p_message_bodies), 0),
            coalesce(cardinality(p_traces), 0), coalesce(cardinality(p_body_faults), 0),
            coalesce(cardinality(p_message_ids), 0)));
    END IF;
    IF NOT dialoq.is_read_committed() THEN
        PERFORM dialoq.check_isolation();
    END IF;
    -- Only then can one of them be too long.
    IF pg_column_size(p_message_bodies) > 500000000 OR pg_column_size(p_traces) > 65536 THEN
        PERFORM dialoq.check_message_bytes(max(octet_length(m.body)), max(octet_length(m.trace)))
        FROM unnest(p_message_bodies, p_traces) AS m (body, trace);
    END IF;
    -- Before any read: tick finds by the transaction's number whether its own reads are complete.
    PERFORM pg_current_xact_id();
    SELECT coalesce(b.manual_now, clock_timestamp()), b.is_broker_enabled, b.catalog_version, g.floor, g.latest, g.asks_each
    INTO v_now, v_is_enabled, v_version, v_floor, v_latest, v_asks_each
    FROM dialoq.broker AS b
    CROSS JOIN (SELECT n.floor, n.latest, n.asks_each FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1) AS g;
    IF v_version <> p_catalog_version THEN
        PERFORM dialoq.check_catalog_version(p_catalog_version);
    END IF;
    -- Most batches are of one service, one contract and one type, to one queue, and no message of them has to wait. Such a batch
    -- takes one statement, which costs a sixth less than the several below. It sends all messages or none.
    IF v_is_enabled AND '' = ALL (p_body_faults) AND p_message_type_names[1] = ALL (p_message_type_names) THEN
        WITH plain AS MATERIALIZED (
            SELECT h.place, e.*, s.*, p.*, pg_try_advisory_xact_lock(dialoq.group_key(e.own_group_id))
                AND (NOT v_keeps_locks OR pg_try_advisory_lock(dialoq.group_key(e.own_group_id))) AS is_ours,
                nextval('dialoq.queue_message_queuing_order_seq') AS queuing_order
            FROM unnest(p_conversation_handles) WITH ORDINALITY AS h (handle, place)
            CROSS JOIN LATERAL (
                SELECT c.endpoint_id AS own_id, c.conversation_group_id AS own_group_id, c.conversation_id, c.is_initiator,
                    c.service_id AS own_service_id, c.service_contract_id
                FROM dialoq.conversation_endpoint AS c
                WHERE c.conversation_handle = h.handle AND NOT c.is_system AND c.state = 'CO'
                    AND (c.due_at IS NULL OR c.due_at > v_now)
                    -- <may_send>
                OFFSET 0
            ) AS e
            CROSS JOIN LATERAL dialoq.send_position(e.own_id) AS s
            CROSS JOIN LATERAL (
                SELECT c.endpoint_id AS peer_id, c.conversation_group_id AS group_id, c.service_id,
                    (10 - c.priority)::smallint AS rank_from_top
                FROM dialoq.conversation_endpoint AS c
                -- <peer>
                OFFSET 0
            ) AS p
        ), whole AS MATERIALIZED (
            SELECT y.message_type_id, q.queue_id
            FROM (
                SELECT count(DISTINCT p.peer_id) AS plain, bool_and(p.is_ours) AS are_ours,
                    min(p.own_service_id) AS own_service_id, max(p.own_service_id) AS other_own_service_id,
                    min(p.service_contract_id) AS service_contract_id, max(p.service_contract_id) AS other_contract_id,
                    bool_and(p.is_initiator) AS are_initiators, bool_or(p.is_initiator) AS is_an_initiator,
                    min(p.service_id) AS service_id, max(p.service_id) AS other_service_id
                FROM plain AS p
            ) AS t
            CROSS JOIN LATERAL (
                SELECT y.message_type_id
                FROM dialoq.message_type AS y
                JOIN dialoq.service_contract_message_usage AS u
                    ON u.service_contract_id = t.service_contract_id AND u.message_type = y.name
                WHERE y.name = p_message_type_names[1] AND NOT y.is_dropped
                    AND CASE WHEN t.are_initiators THEN u.is_sent_by_initiator ELSE u.is_sent_by_target END
                OFFSET 0
            ) AS y
            -- <common_queue>
            WHERE t.plain = v_count AND t.are_ours AND t.own_service_id = t.other_own_service_id
                AND t.service_contract_id = t.other_contract_id AND t.are_initiators = t.is_an_initiator
                AND t.service_id = t.other_service_id
        ), sent AS (
            INSERT INTO dialoq.queue_message (
                queuing_order, endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace)
            OVERRIDING SYSTEM VALUE
            SELECT p.queuing_order, p.peer_id, 0, p.sequence, w.message_type_id,
                coalesce(p_message_ids[p.place], gen_random_uuid()), v_now,
                CASE WHEN length(p_message_bodies[p.place]) > 0 THEN p_message_bodies[p.place] END, p_traces[p.place]
            FROM whole AS w CROSS JOIN plain AS p
        ), counted AS (
            -- The endpoints were read before they were locked. If one has sent since, or has changed (touch_counter), its
            -- counter is not found.
            UPDATE dialoq.send_counter AS n SET send_sequence = p.sequence + 1, bucket = (p.sequence + 1) / 32
            FROM whole AS w CROSS JOIN plain AS p
            -- The place is asked for twice. Before 15.15, and the versions of that day of the other majors, the server does not compare the
            -- first again after it has waited for a change of the row; the second is a filter, which it compares.
            WHERE n.ctid = p.counter AND (n.ctid <> p.counter) IS NOT TRUE AND n.send_sequence + 0 = p.sequence
            RETURNING true
        ), ready AS (
            -- As add_ready, for all of them.
            INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
            SELECT w.queue_id, p.rank_from_top, least(p.queuing_order, (
                    SELECT min(r.oldest) FROM dialoq.ready_group AS r
                    WHERE r.conversation_group_id <= p.group_id AND (r.conversation_group_id, r.generation) >= (p.group_id, v_floor))),
                p.group_id, v_latest
            FROM whole AS w
            CROSS JOIN plain AS p
            LEFT JOIN LATERAL (
                SELECT true AS is_kept FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= p.group_id
                    AND (r.conversation_group_id, r.generation) >= (p.group_id, v_floor) AND r.queue_id + 0 = w.queue_id
                    AND r.rank_from_top + 0 = p.rank_from_top AND r.oldest + 0 <= p.queuing_order
                LIMIT 1
                FOR KEY SHARE SKIP LOCKED
            ) AS k ON true
            WHERE k.is_kept IS NULL
        )
        SELECT 'q:' || w.queue_id::text, (SELECT count(*) FROM counted) INTO v_notices, v_counted FROM whole AS w;
        IF FOUND THEN
            IF v_counted < v_count THEN
                RAISE EXCEPTION 'another session sent on a conversation of this batch at the same moment; run the transaction again'
                    USING ERRCODE = 'serialization_failure';
            END IF;
            v_notices := dialoq.publish_notices(v_notices);
            RETURN QUERY SELECT 0, NULL::integer, NULL::text, v_notices;
            RETURN;
        END IF;
    END IF;
    -- What is read of a conversation before its lock may be old, but for what never changes.
    SELECT array_agg(c.endpoint_id), array_agg(c.group_id), array_agg(c.service_id), array_agg(c.service_contract_id),
        array_agg(c.is_initiator), array_agg(c.type_name), array_agg(c.is_ours), array_agg(c.behind)
    INTO v_endpoints, v_groups, v_services, v_contracts, v_initiators, v_type_names, v_are_ours, v_behind
    FROM (
        SELECT e.endpoint_id, e.conversation_group_id AS group_id, e.service_id, e.service_contract_id, e.is_initiator,
            coalesce(h.type_name, 'DEFAULT') AS type_name, h.behind,
            pg_try_advisory_xact_lock(dialoq.group_key(e.conversation_group_id))
                AND (NOT v_keeps_locks OR pg_try_advisory_lock(dialoq.group_key(e.conversation_group_id))) AS is_ours
        FROM (
            SELECT u.handle, u.type_name, u.place, row_number() OVER (PARTITION BY u.handle ORDER BY u.place) - 1 AS behind
            FROM unnest(p_conversation_handles, p_message_type_names) WITH ORDINALITY AS u (handle, type_name, place)
        ) AS h
        LEFT JOIN LATERAL (
            SELECT c.endpoint_id, c.conversation_group_id, c.service_id, c.service_contract_id, c.is_initiator
            FROM dialoq.conversation_endpoint AS c
            WHERE c.conversation_handle = h.handle AND NOT c.is_system
            OFFSET 0
        ) AS e ON true
        ORDER BY h.place
    ) AS c;
    -- The plain messages: of a conversation that both sides speak on, with nothing before them and nothing wrong with them.
    IF v_is_enabled THEN
        v_type_ids := ARRAY(
            SELECT t.message_type_id
            FROM unnest(v_services, v_contracts, v_initiators, v_type_names, p_body_faults)
                WITH ORDINALITY AS i (service_id, service_contract_id, is_initiator, type_name, fault, place)
            LEFT JOIN LATERAL (
                SELECT y.message_type_id
                FROM dialoq.message_type AS y
                JOIN dialoq.service_contract_message_usage AS u
                    ON u.service_contract_id = i.service_contract_id AND u.message_type = y.name
                JOIN dialoq.service AS s ON s.service_id = i.service_id
                JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
                WHERE y.name = i.type_name AND NOT y.is_dropped AND NOT q.is_retention_enabled
                    AND (i.fault = '' OR i.fault IS NULL AND y.validation = 'N')
                    AND CASE WHEN i.is_initiator THEN u.is_sent_by_initiator ELSE u.is_sent_by_target END
                OFFSET 0
            ) AS t ON true
            ORDER BY i.place);
    END IF;
    -- OFFSET 0 keeps the planner from reading a whole table instead of its index.
    SELECT array_agg(r.place), array_agg(r.row), array_agg(r.peer_id), array_agg(r.sequence), array_agg(r.type_id),
        array_agg(r.peer_group), array_agg(r.peer_service_id), array_agg(r.rank_from_top)
    INTO v_places, v_rows, v_peers, v_sequences, v_types, v_peer_groups, v_peer_services, v_tops
    FROM (
        SELECT i.place, i.type_id, s.counter AS row, s.sequence + i.behind AS sequence, p.endpoint_id AS peer_id,
            p.conversation_group_id AS peer_group, p.service_id AS peer_service_id, (10 - p.priority)::smallint AS rank_from_top
        FROM unnest(v_endpoints, v_groups, v_are_ours, v_behind, v_type_ids)
            WITH ORDINALITY AS i (endpoint_id, group_id, is_ours, behind, type_id, place)
        CROSS JOIN LATERAL (
            SELECT c.endpoint_id, c.conversation_group_id, c.conversation_id, c.is_initiator
            FROM dialoq.conversation_endpoint AS c
            WHERE c.endpoint_id = i.endpoint_id AND c.state = 'CO' AND (c.due_at IS NULL OR c.due_at > v_now)
                AND NOT EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = c.endpoint_id OFFSET 0)
                -- <conversing>
            OFFSET 0
        ) AS e
        CROSS JOIN LATERAL dialoq.send_position(e.endpoint_id) AS s
        CROSS JOIN LATERAL (
            SELECT c.endpoint_id, c.conversation_group_id, c.priority, c.service_id
            FROM dialoq.conversation_endpoint AS c
            -- <peer>
            OFFSET 0
        ) AS p
        WHERE i.is_ours AND i.type_id IS NOT NULL AND e.conversation_group_id = i.group_id
        ORDER BY i.place
    ) AS r;
    IF v_places IS NOT NULL THEN
        v_queues := ARRAY(
            SELECT q.queue_id
            FROM unnest(v_peer_services) WITH ORDINALITY AS p (service_id, place)
            LEFT JOIN LATERAL (
                SELECT q.queue_id FROM dialoq.service AS s JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
                WHERE s.service_id = p.service_id AND q.is_enqueue_enabled
                OFFSET 0
            ) AS q ON true
            ORDER BY p.place);
        -- If one message of a conversation is not plain, none of it is.
        IF array_position(v_queues, NULL) IS NOT NULL OR cardinality(v_places) < v_count AND 0 < ANY (v_behind) THEN
            SELECT array_agg(p.place), array_agg(p.row), array_agg(p.peer_id), array_agg(p.sequence),
                array_agg(p.message_type_id), array_agg(p.peer_group), array_agg(p.queue_id), array_agg(p.rank_from_top)
            INTO v_places, v_rows, v_peers, v_sequences, v_types, v_peer_groups, v_queues, v_tops
            FROM (
                SELECT u.*, v_endpoints[u.place] AS endpoint_id, count(*) OVER (PARTITION BY v_endpoints[u.place]) AS plain
                FROM unnest(v_places, v_rows, v_peers, v_sequences, v_types, v_peer_groups, v_queues, v_tops)
                    AS u (place, row, peer_id, sequence, message_type_id, peer_group, queue_id, rank_from_top)
                WHERE u.queue_id IS NOT NULL
                ORDER BY u.place
            ) AS p
            JOIN (SELECT u.endpoint_id, count(*) AS given FROM unnest(v_endpoints) AS u (endpoint_id) GROUP BY u.endpoint_id) AS g
                ON g.endpoint_id = p.endpoint_id AND g.given = p.plain;
        END IF;
    END IF;
    IF p_is_ordered AND cardinality(v_places) < v_count THEN
        v_places := NULL;
    END IF;
    IF v_places IS NOT NULL THEN
        -- The numbers are given here, so that the rows are inserted in the order of the places.
        v_orders := ARRAY(SELECT nextval('dialoq.queue_message_queuing_order_seq') FROM unnest(v_places));
        INSERT INTO dialoq.queue_message (
            queuing_order, endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace)
        OVERRIDING SYSTEM VALUE
        SELECT n.queuing_order, n.peer_id, 0, n.sequence, n.message_type_id,
            coalesce(p_message_ids[n.place], gen_random_uuid()), v_now,
            CASE WHEN length(p_message_bodies[n.place]) > 0 THEN p_message_bodies[n.place] END, p_traces[n.place]
        FROM unnest(v_places, v_peers, v_sequences, v_types, v_orders) AS n (place, peer_id, sequence, message_type_id, queuing_order);
        IF 0 < ANY (v_behind) THEN
            UPDATE dialoq.send_counter AS c SET send_sequence = n.next, bucket = n.next / 32
            FROM (
                SELECT u.row, max(u.sequence) + 1 AS next
                FROM unnest(v_rows, v_sequences) AS u (row, sequence) GROUP BY u.row
            ) AS n
            WHERE c.ctid = n.row;
        ELSE
            UPDATE dialoq.send_counter AS c SET send_sequence = u.sequence + 1, bucket = (u.sequence + 1) / 32
            FROM unnest(v_rows, v_sequences) AS u (row, sequence)
            WHERE c.ctid = u.row;
        END IF;
        -- As add_ready, for all of them.
        WITH arrived AS MATERIALIZED (
            SELECT a.group_id, a.queue_id, a.rank_from_top, min(a.oldest) AS oldest
            FROM unnest(v_peer_groups, v_queues, v_tops, v_orders) AS a (group_id, queue_id, rank_from_top, oldest)
            GROUP BY a.group_id, a.queue_id, a.rank_from_top
        )
        INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
        SELECT a.queue_id, a.rank_from_top, least(a.oldest, (
                SELECT min(r.oldest) FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= a.group_id AND (r.conversation_group_id, r.generation) >= (a.group_id, v_floor))),
            a.group_id, v_latest
        FROM arrived AS a
        LEFT JOIN LATERAL (
            SELECT true AS is_kept FROM dialoq.ready_group AS r
            WHERE r.conversation_group_id <= a.group_id
                AND (r.conversation_group_id, r.generation) >= (a.group_id, v_floor) AND r.queue_id + 0 = a.queue_id
                AND r.rank_from_top + 0 = a.rank_from_top AND r.oldest + 0 <= a.oldest
            LIMIT 1
            FOR KEY SHARE SKIP LOCKED
        ) AS k ON true
        WHERE k.is_kept IS NULL;
        v_notices := CASE WHEN v_queues[1] = ALL (v_queues) THEN 'q:' || v_queues[1]::text ELSE (
            SELECT string_agg(DISTINCT 'q:' || q.id::text, ' ') FROM unnest(v_queues) AS q (id)) END;
    END IF;
    IF v_is_enabled AND (v_places IS NULL OR cardinality(v_places) < v_count) THEN
        v_possible := ARRAY(
            SELECT i.place::integer FROM unnest(v_endpoints, v_are_ours, v_type_ids) WITH ORDINALITY AS i (endpoint_id, is_ours, type_id, place)
            WHERE i.is_ours AND i.type_id IS NOT NULL AND (i.place = ANY (v_places)) IS NOT TRUE
                AND array_position(v_endpoints, i.endpoint_id) = i.place
                AND array_position(v_endpoints, i.endpoint_id, i.place::integer + 1) IS NULL
            ORDER BY i.place);
        IF cardinality(v_possible) = v_count OR cardinality(v_possible) > 0 AND p_is_ordered IS NOT TRUE THEN
            SELECT coalesce(array_agg(f.place), '{}'), concat_ws(' ', v_notices, string_agg(DISTINCT 'q:' || f.queue_id::text, ' '))
            INTO v_firsts, v_notices
            FROM dialoq.send_first(v_possible, v_endpoints, v_groups, v_type_ids, p_message_bodies, p_traces, p_message_ids, p_is_ordered IS TRUE) AS f;
        END IF;
    END IF;
    IF coalesce(cardinality(v_places), 0) + cardinality(v_firsts) = v_count THEN
        v_notices := dialoq.publish_notices(v_notices);
        RETURN QUERY SELECT 0, NULL::integer, NULL::text, v_notices;
        RETURN;
    END IF;
    v_errors := array_fill(NULL::integer, ARRAY[v_count]);
    v_texts := array_fill(NULL::text, ARRAY[v_count]);
    FOR v_row IN
        SELECT i.place, i.handle, coalesce(i.type_name, 'DEFAULT') AS type_name, t.message_type_id,
            CASE WHEN length(i.body) > 0 THEN i.body END AS body, i.trace, i.fault, coalesce(i.id, gen_random_uuid()) AS id,
            i.fault IS NULL AND length(i.body) > 0 AND t.validation IN ('V', 'S') AS needs_client,
            -- Not tried again: an earlier message of the conversation may have met the lock.
            v_endpoints[i.place] IS NOT NULL AND NOT v_are_ours[i.place] AS is_held
        FROM unnest(p_conversation_handles, p_message_type_names, p_message_bodies, p_traces, p_body_faults, p_message_ids)
            WITH ORDINALITY AS i (handle, type_name, body, trace, fault, id, place)
        LEFT JOIN dialoq.message_type AS t ON t.name = coalesce(i.type_name, 'DEFAULT') AND NOT t.is_dropped
        WHERE (v_places IS NULL OR NOT i.place = ANY (v_places)) AND NOT i.place = ANY (v_firsts)
        ORDER BY i.place
    LOOP
        IF NOT dialoq.is_body_fault(v_row.fault) THEN
            v_errors[v_row.place] := 60005;
            v_texts[v_row.place] := dialoq.bad_body_fault(v_row.fault);
            CONTINUE;
        ELSIF v_row.needs_client THEN
            v_errors[v_row.place] := 60026;
            v_texts[v_row.place] := dialoq.needs_client(v_row.type_name);
            CONTINUE;
        END IF;
        IF (v_row.is_held OR v_row.handle = ANY (v_held)) AND v_row.message_type_id IS NOT NULL THEN
            v_errors[v_row.place] := -1;
            v_held := v_held || v_row.handle;
            CONTINUE;
        END IF;
        SELECT * INTO v_lock FROM dialoq.lock_handle(v_row.handle, false);
        v_notices := concat_ws(' ', v_notices, v_lock.notices);
        IF v_lock.endpoint_id IS NULL THEN
            v_errors[v_row.place] := 8426;
            v_texts[v_row.place] := dialoq.conversation_not_found(v_row.handle);
        ELSIF v_row.message_type_id IS NULL THEN
            v_errors[v_row.place] := 8428;
            v_texts[v_row.place] := dialoq.name_not_found('message type', v_row.type_name);
        ELSIF v_lock.endpoint_id = -1 THEN
            v_errors[v_row.place] := -1;
            v_held := v_held || v_row.handle;
        ELSE
            SELECT * INTO v_sent FROM dialoq.send_from(v_lock.endpoint_id, v_row.message_type_id, v_row.type_name,
                v_row.body, v_row.trace, coalesce(v_row.fault, dialoq.body_fault(v_row.message_type_id, v_row.body)), v_row.id);
            v_errors[v_row.place] := v_sent.error_number;
            v_texts[v_row.place] := v_sent.error_message;
            v_notices := concat_ws(' ', v_notices, v_sent.notices);
        END IF;
    END LOOP;
    v_notices := dialoq.publish_notices(v_notices);
    RETURN QUERY
    SELECT r.place::integer - 1, r.number, r.message, CASE WHEN r.place = 1 THEN v_notices END
    FROM unnest(v_errors, v_texts) WITH ORDINALITY AS r (number, message, place)
    ORDER BY r.place;
END $$;
