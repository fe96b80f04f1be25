-- Claims messages for transactions of different callers that have done nothing else, as RECEIVE chooses them: they are
-- shown and stay in the queue until commit_claims or take_claim takes them. Nothing is written. Never waits. Only a group
-- that is one conversation with nothing pending is claimed, and only small messages; RECEIVE serves the others.
-- Takes: the queue; for each caller how many messages at most (NULL: all of the group); the groups that this session has
--     claimed; where to begin, as receive_batch
-- Gives: for each item, from 0, its messages in order of receipt; one row without a message if RECEIVE must serve the item; no row
--     if no group is free
-- Errors: 9617, 60002, 60005
-- Locks: the groups, for the session and in shared mode, without waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.claim_batch(
    p_queue text, p_tops bigint[], p_claimed uuid[], p_from_level integer DEFAULT NULL, p_from_order bigint DEFAULT NULL)
RETURNS TABLE (
    item integer, status integer, priority integer, queuing_order bigint, conversation_group_id uuid,
    conversation_handle uuid, message_sequence_number bigint, service_name text, service_id integer,
    service_contract_name text, service_contract_id integer, message_type_name text, message_type_id integer,
    validation text, message_body bytea, message_id uuid, message_enqueue_time timestamptz, trace text, endpoint_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_mergejoin = off SET enable_memoize = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_queue_id integer;
    v_gives boolean;
    v_is_plain boolean;
    v_services integer[];
    v_floor bigint;
    v_has_risen boolean;
    v_now timestamptz;
    v_past_top smallint := -1;
    v_past bigint := -1;
    v_tops smallint[];
    v_oldest bigint[];
    v_groups uuid[];
    -- A claim has at most so many messages; RECEIVE serves a caller that would get more.
    v_most CONSTANT bigint := 16;
    -- And bodies of so many bytes: the claims and commits of all callers wait while the session sends them. While it sent 300 MB to one
    -- caller, no other transaction of the process ended.
    v_most_bytes CONSTANT bigint := 65536;
BEGIN
    IF (cardinality(p_tops) BETWEEN 1 AND 10000 AND array_ndims(p_tops) = 1 AND array_lower(p_tops, 1) = 1
        AND cardinality(p_claimed) <= 10000) IS NOT TRUE
    THEN
        PERFORM dialoq.fail(60005, format('p_tops has %s elements and p_claimed %s; they must be arrays of 1 to 10000 and of at '
            'most 10000 elements, p_tops of one dimension that begins with 1',
            coalesce(cardinality(p_tops)::text, 'no'), coalesce(cardinality(p_claimed)::text, 'no')));
    END IF;
    SELECT q.queue_id, q.is_receive_enabled AND q.receives_held_until IS NULL, coalesce(b.manual_now, clock_timestamp()),
        NOT q.is_retention_enabled AND NOT EXISTS (SELECT FROM dialoq.queue_rollback AS r WHERE r.queue_id = q.queue_id),
        ARRAY(SELECT s.service_id FROM dialoq.service AS s WHERE s.queue_id = q.queue_id),
        (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)
    INTO v_queue_id, v_gives, v_now, v_is_plain, v_services, v_floor
    FROM dialoq.service_queue AS q CROSS JOIN dialoq.broker AS b
    WHERE q.folded_name = lower(p_queue COLLATE "C");
    IF v_gives IS NOT TRUE OR current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only') = 'on'
    THEN
        v_queue_id := dialoq.receivable(p_queue);
        -- The claims of this session are of other transactions.
        IF EXISTS (SELECT FROM dialoq.service_queue AS q WHERE q.queue_id = v_queue_id
            AND q.receives_held_until > v_now AND q.receives_held_until <= v_now + interval '60 s')
        THEN
            RETURN;
        END IF;
    END IF;
    IF NOT v_is_plain THEN
        RETURN QUERY
        SELECT g.item, NULL::integer, NULL::integer, NULL::bigint, NULL::uuid, NULL::uuid, NULL::bigint, NULL::text, NULL::integer,
            NULL::text, NULL::integer, NULL::text, NULL::integer, NULL::text, NULL::bytea, NULL::uuid, NULL::timestamptz, NULL::text,
            NULL::bigint
        FROM generate_series(0, cardinality(p_tops) - 1) AS g (item);
        RETURN;
    END IF;
    -- Deleted rows stay in the index until vacuum removes them, before all live rows.
    IF p_from_order IS NOT NULL AND p_from_level BETWEEN 1 AND 10 AND NOT EXISTS (
        -- By its order, as in receive_batch.
        SELECT FROM dialoq.candidates(v_queue_id, v_floor, -1::smallint, -1, '{}', (9 - p_from_level)::smallint))
    THEN
        v_past_top := 10 - p_from_level;
        v_past := p_from_order;
    END IF;
    LOOP
        SELECT array_agg(c.rank_from_top), array_agg(c.oldest), array_agg(c.group_id) INTO v_tops, v_oldest, v_groups
        FROM (
            SELECT r.* FROM dialoq.candidates(v_queue_id, v_floor, v_past_top, v_past, '{}', 10::smallint) AS r
            -- The session's own shared lock does not keep it from locking a group once more.
            WHERE CASE WHEN r.group_id = ANY (p_claimed) THEN false
                ELSE pg_try_advisory_xact_lock(dialoq.group_key(r.group_id)) END
            LIMIT cardinality(p_tops)
        ) AS c;
        EXIT WHEN cardinality(v_groups) = cardinality(p_tops);
        IF v_past_top < 0 THEN
            EXIT WHEN v_groups IS NOT NULL;
            SELECT f.p_floor, f.has_risen INTO v_floor, v_has_risen FROM dialoq.has_floor_risen(v_floor) AS f;
            EXIT WHEN NOT v_has_risen;
        END IF;
        v_past_top := -1;
        v_past := -1;
    END LOOP;
    IF v_groups IS NULL THEN
        RETURN;
    END IF;
    -- A statement of its own: it sees what the holders before have committed.
    IF 1 = ALL (p_tops) THEN
        -- The usual case by the smallest plan: its start costs more than its work.
        RETURN QUERY
        SELECT (g.place - 1)::integer, CASE WHEN c.handle IS NOT NULL THEN 1 END, 10 - g.top, c.queuing_order, g.group_id, c.handle,
            c.sequence, n.service, c.service_id, n.contract, c.service_contract_id, n.message_type, c.message_type_id, n.validation,
            c.body, c.message_id, c.enqueued_at, c.trace, c.endpoint_id
        FROM unnest(v_tops, v_oldest, v_groups) WITH ORDINALITY AS g (top, oldest, group_id, place)
        LEFT JOIN LATERAL (
            SELECT *
            FROM (
                SELECT e.endpoint_id, e.conversation_handle AS handle, e.service_id, e.service_contract_id, m.*
                FROM dialoq.conversation_endpoint AS e
                CROSS JOIN LATERAL (
                    SELECT n.queuing_order, n.sequence, n.message_type_id, n.body, n.message_id, n.enqueued_at, n.trace
                    FROM dialoq.queue_message AS n
                    WHERE n.endpoint_id = e.endpoint_id AND n.delivery_class = 0
                        AND n.queuing_order >= (SELECT o.oldest FROM dialoq.oldest_row(g.group_id, g.oldest, v_floor) AS o)
                    ORDER BY n.queuing_order
                    LIMIT 1
                ) AS m
                WHERE e.conversation_group_id = g.group_id AND e.rollbacks = 0 AND (e.due_at IS NULL OR e.due_at > v_now)
                    AND NOT e.is_quarantined AND e.moved_recheck_id IS NULL AND e.state IN ('SO', 'CO') AND 10 - e.priority = g.top
                    AND e.service_id = ANY (v_services) AND (m.queuing_order = g.oldest OR cardinality(p_tops) > 1)
                    AND (length(m.body) > v_most_bytes) IS NOT TRUE
                    AND (SELECT f.message_type_id FROM dialoq.first_system(e.endpoint_id) AS f) IS NULL
                    AND NOT EXISTS (
                        SELECT FROM dialoq.conversation_endpoint AS o
                        WHERE o.conversation_group_id = g.group_id AND o.endpoint_id <> e.endpoint_id)
                OFFSET 0
            ) AS e
            -- A group may have several rows.
            WHERE CASE WHEN array_position(v_groups, g.group_id) = g.place THEN dialoq.claim_group(g.group_id) ELSE false END
        ) AS c ON true
        LEFT JOIN LATERAL dialoq.message_names(c.service_id, c.service_contract_id, c.message_type_id) AS n ON true;
        RETURN;
    END IF;
    RETURN QUERY
    WITH seen AS MATERIALIZED (
        SELECT c.*, m.*, count(*) OVER (PARTITION BY c.place) AS messages, sum(length(m.body)) OVER (PARTITION BY c.place) AS bytes,
            row_number() OVER (PARTITION BY c.place ORDER BY m.queuing_order) AS number
        FROM (
            SELECT g.place, g.top, g.oldest, g.most, g.group_id, e.*, count(*) OVER (PARTITION BY g.place) AS endpoints
            FROM (
                SELECT u.*, p_tops[u.place] AS most, row_number() OVER (PARTITION BY u.group_id ORDER BY u.place) AS times
                FROM unnest(v_tops, v_oldest, v_groups) WITH ORDINALITY AS u (top, oldest, group_id, place)
            ) AS g
            CROSS JOIN LATERAL (
                SELECT e.endpoint_id, e.conversation_handle AS handle, e.service_id, e.service_contract_id,
                    e.rollbacks = 0 AND (e.due_at IS NULL OR e.due_at > v_now) AND NOT e.is_quarantined
                        AND e.moved_recheck_id IS NULL AND e.state IN ('SO', 'CO') AND 10 - e.priority = g.top AS is_plain
                FROM dialoq.conversation_endpoint AS e WHERE e.conversation_group_id = g.group_id OFFSET 0
            ) AS e
            -- A group may have several rows.
            WHERE g.times = 1
        ) AS c
        CROSS JOIN LATERAL (
            SELECT n.queuing_order, n.sequence, n.message_type_id, n.body, n.message_id, n.enqueued_at, n.trace
            FROM dialoq.queue_message AS n
            WHERE n.endpoint_id = c.endpoint_id AND n.delivery_class = 0
                AND n.queuing_order >= (SELECT o.oldest FROM dialoq.oldest_row(c.group_id, c.oldest, v_floor) AS o)
            ORDER BY n.queuing_order
            LIMIT greatest(least(c.most, v_most + 1), 0)
        ) AS m
        WHERE c.is_plain AND c.endpoints = 1
            AND c.service_id = ANY (v_services)
            AND (SELECT f.message_type_id FROM dialoq.first_system(c.endpoint_id) AS f) IS NULL
    ), claimed AS MATERIALIZED (
        SELECT c.*, bool_or(c.claims) OVER (PARTITION BY c.place) AS is_claimed
        FROM (
            SELECT s.*, CASE
                -- A lone caller gets the messages in the strict order: a row that names an older message is served by RECEIVE.
                WHEN s.number = 1 AND s.messages <= v_most AND (s.bytes > v_most_bytes) IS NOT TRUE
                    AND (s.queuing_order = s.oldest OR cardinality(p_tops) > 1)
                    THEN dialoq.claim_group(s.group_id)
                ELSE false END AS claims
            FROM seen AS s
            OFFSET 0
        ) AS c
    ), names AS MATERIALIZED (
        SELECT d.*, n.*
        FROM (SELECT DISTINCT s.service_id, s.service_contract_id, s.message_type_id FROM seen AS s) AS d
        CROSS JOIN LATERAL dialoq.message_names(d.service_id, d.service_contract_id, d.message_type_id) AS n
    )
    SELECT (p.place - 1)::integer, CASE WHEN s.place IS NOT NULL THEN 1 END, 10 - s.top, s.queuing_order, s.group_id, s.handle,
        s.sequence, n.service, s.service_id, n.contract, s.service_contract_id, n.message_type, s.message_type_id, n.validation,
        s.body, s.message_id, s.enqueued_at, s.trace, s.endpoint_id
    FROM generate_series(1, cardinality(v_groups)) AS p (place)
    LEFT JOIN claimed AS s ON s.place = p.place AND s.is_claimed
    LEFT JOIN names AS n ON n.message_type_id = s.message_type_id AND n.service_id = s.service_id
        AND n.service_contract_id = s.service_contract_id
    ORDER BY p.place, s.queuing_order;
END $$;
