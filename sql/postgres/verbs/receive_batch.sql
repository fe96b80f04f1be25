-- RECEIVEs of different callers from one queue in one transaction. Never waits. Callers share out the groups of the best
-- level, the oldest first; a group goes to several callers if there are fewer groups than callers.
-- Takes: the queue; for each how many at most (NULL: all of the group); the level and the oldest queuing_order of what the
--     batch before gave, or NULL: older messages of that level are tried only if the queue has no others
-- Gives: for each item, from 0, its messages in order of receipt; none for an item that got no message
-- Errors: 9617, 60002, 60005
-- Locks: the groups, without waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.receive_batch(
    p_queue text, p_tops bigint[], p_from_level integer DEFAULT NULL, p_from_order bigint DEFAULT NULL)
RETURNS TABLE (
    item integer, status integer, priority integer, queuing_order bigint, conversation_group_id uuid,
    conversation_handle uuid, message_sequence_number bigint, service_name text, service_id integer,
    service_contract_name text, service_contract_id integer, message_type_name text, message_type_id integer,
    validation text, message_body bytea, message_id uuid, message_enqueue_time timestamptz, trace text, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_mergejoin = off SET enable_memoize = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_queue_id integer;
    v_gives boolean;
    v_retains boolean;
    v_has_rollbacks boolean;
    v_xid xid8;
    v_floor bigint;
    v_asks_each boolean;
    v_latest bigint;
    v_has_risen boolean;
    v_rank_read bigint := pg_stat_get_xact_tuples_returned('dialoq.ready_group_rank'::regclass);
    v_group_read bigint := pg_stat_get_xact_tuples_returned('dialoq.ready_group_group'::regclass);
    v_is_any boolean := false;
    v_services integer[];
    v_now timestamptz;
    -- The callers without a message so far, and how many each wants.
    v_items integer[];
    v_tops bigint[];
    -- The place that the scan of ready_group has reached.
    v_past_top smallint := -1;
    v_past bigint := -1;
    -- The groups already read at this level and age. After a MOVE two groups can have rows of the same level and age.
    v_past_groups uuid[] := '{}';
    -- Where it begins.
    v_start_top smallint := -1;
    v_start bigint := -1;
    v_top smallint;
    v_row_tops smallint[];
    v_groups uuid[];
    v_oldest bigint[];
    v_are_distinct boolean;
    -- One caller gets the messages in the strict order. Where many send and receive, it is a third of a batch's work to give it to many.
    v_is_alone CONSTANT boolean := cardinality(p_tops) = 1;
    v_age bigint;
    -- Groups that are younger than their rows say, and their ages. A sender that relies on such a row keeps it, so it is passed over.
    v_younger_groups uuid[];
    v_younger_oldest bigint[];
    v_held tid[];
    v_held_groups uuid[];
    v_held_oldest bigint[];
    -- The number of messages wanted of each group, and the groups with a message that was seen.
    v_most bigint[];
    v_seen uuid[];
    -- Endpoints with pending messages or events.
    v_pending bigint[];
    v_id bigint;
    -- The messages taken, in the order of receipt.
    v_messages tid[];
    v_takers integer[];
    v_levels smallint[];
    v_taken_groups uuid[];
    v_handles uuid[];
    v_taken_services integer[];
    v_contracts integer[];
    -- The groups with more messages than are taken: those that keep their level, and the others.
    v_rest_groups uuid[];
    v_rest_oldest bigint[];
    v_wrong uuid[];
    v_notices text;
    -- Whether every caller wants one message; the signposts of the groups.
    v_is_plain boolean;
    v_rows tid[];
    v_served integer;
    -- More than any group has; a sum of so many such numbers is still a number.
    v_most_of_all CONSTANT bigint := 1000000000000;
BEGIN
    IF (cardinality(p_tops) = 0 OR cardinality(p_tops) <= 10000 AND array_ndims(p_tops) = 1 AND array_lower(p_tops, 1) = 1)
        IS NOT TRUE
    THEN
        PERFORM dialoq.fail(60005, format(
            'p_tops has %s elements; it must be an array of one dimension that begins with 1, of 10000 elements at most',
            coalesce(cardinality(p_tops)::text, 'no')));
    ELSIF p_from_level NOT BETWEEN 1 AND 10 OR p_from_order < 0 OR p_from_level IS NULL AND p_from_order IS NOT NULL THEN
        PERFORM dialoq.fail(60005, format(
            'p_from_level is %s and p_from_order is %s; they must be 1 to 10 and from 0, or NULL',
            coalesce(p_from_level::text, 'NULL'), coalesce(p_from_order::text, 'NULL')));
    END IF;
    SELECT q.queue_id, q.is_receive_enabled AND q.receives_held_until IS NULL, q.is_retention_enabled, coalesce(b.manual_now, clock_timestamp()),
        EXISTS (SELECT FROM dialoq.queue_rollback AS r WHERE r.queue_id = q.queue_id),
        ARRAY(SELECT s.service_id FROM dialoq.service AS s WHERE s.queue_id = q.queue_id), g.floor, g.asks_each
    INTO v_queue_id, v_gives, v_retains, v_now, v_has_rollbacks, v_services, v_floor, v_asks_each
    FROM (SELECT n.floor, n.asks_each FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1) AS g
    CROSS JOIN dialoq.service_queue AS q CROSS JOIN dialoq.broker AS b
    WHERE q.folded_name = lower(p_queue COLLATE "C");
    IF v_gives IS NOT TRUE OR current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only') = 'on'
    THEN
        v_queue_id := dialoq.receivable(p_queue);
        IF dialoq.is_held_back(v_queue_id) THEN
            RETURN;
        END IF;
    END IF;
    IF 0 < ALL (p_tops) AND v_most_of_all >= ALL (p_tops) THEN
        v_items := ARRAY(SELECT generate_series(0, cardinality(p_tops) - 1));
        v_tops := p_tops;
    ELSE
        SELECT array_agg(t.place - 1 ORDER BY t.place), array_agg(least(t.top, v_most_of_all) ORDER BY t.place)
        INTO v_items, v_tops
        FROM unnest(p_tops) WITH ORDINALITY AS t (top, place) WHERE t.top IS NULL OR t.top > 0;
    END IF;
    v_is_plain := 1 = ALL (v_tops) AND NOT v_retains;
    -- Deleted rows stay in the index until vacuum removes them, before all live rows.
    IF p_from_order IS NOT NULL AND NOT EXISTS (
        -- By its order: with the columns alone the planner may walk over all of the index by group, where ANALYZE saw few rows.
        SELECT FROM dialoq.candidates(v_queue_id, v_floor, -1::smallint, -1, '{}', (9 - p_from_level)::smallint))
    THEN
        v_start_top := 10 - p_from_level;
        v_start := p_from_order;
        v_past_top := v_start_top;
        v_past := v_start;
    END IF;
    WHILE cardinality(v_items) > 0 LOOP
        -- The best groups that no other session holds, as many as there are callers; of those the ones of the best level.
        SELECT array_agg(c.rank_from_top), array_agg(c.oldest), array_agg(c.group_id), count(DISTINCT c.oldest) = count(*)
        INTO v_row_tops, v_oldest, v_groups, v_are_distinct
        FROM (
            SELECT r.* FROM dialoq.candidates(v_queue_id, v_floor, v_past_top, v_past, v_past_groups, 10::smallint) AS r
            WHERE CASE
                WHEN v_younger_groups IS NOT NULL AND EXISTS (
                    SELECT FROM unnest(v_younger_groups, v_younger_oldest) AS y (id, oldest)
                    WHERE y.id = r.group_id AND y.oldest > r.oldest) THEN false
                ELSE pg_try_advisory_xact_lock(dialoq.group_key(r.group_id))
            END
            LIMIT cardinality(v_items)
        ) AS c;
        IF v_groups IS NULL THEN
            IF v_start_top < 0 THEN
                SELECT f.p_floor, f.has_risen INTO v_floor, v_has_risen FROM dialoq.has_floor_risen(v_floor) AS f;
                EXIT WHEN NOT v_has_risen;
            END IF;
            v_start_top := -1;
            v_start := -1;
            v_past_top := -1;
            v_past := -1;
            v_past_groups := '{}';
            CONTINUE;
        END IF;
        v_xid := pg_current_xact_id();
        v_top := v_row_tops[1];
        IF v_row_tops[cardinality(v_row_tops)] > v_top THEN
            v_oldest := v_oldest[:cardinality(array_positions(v_row_tops, v_top))];
            v_groups := v_groups[:cardinality(v_oldest)];
        END IF;
        IF v_top > v_past_top OR v_oldest[cardinality(v_oldest)] > v_past THEN
            v_past_groups := '{}';
        END IF;
        v_past_groups := v_past_groups || v_groups;
        v_past_top := v_top;
        v_past := v_oldest[cardinality(v_oldest)];
        -- All rows of these groups at this level go, so that a group does not gather them. One that came since may name an
        -- older message.
        SELECT array_agg(h.place), array_agg(h.group_id), array_agg(h.oldest), (
            SELECT g.latest FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)
        INTO v_held, v_held_groups, v_held_oldest, v_latest
        FROM (
            SELECT r.place, g.id AS group_id, r.oldest
            FROM unnest(v_groups) AS g (id)
            CROSS JOIN LATERAL (
                SELECT r.ctid AS place, r.oldest FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= g.id AND (r.conversation_group_id, r.generation) >= (g.id, v_floor)
                    AND r.queue_id + 0 = v_queue_id AND r.rank_from_top + 0 = v_top
                FOR UPDATE SKIP LOCKED
            ) AS r
        ) AS h;
        -- A search by rank may begin behind the dead rows, a search by group cannot.
        IF v_rank_read IS NOT NULL THEN
            IF pg_stat_get_xact_tuples_returned('dialoq.ready_group_rank'::regclass) - v_rank_read > 2000 + 2 * cardinality(v_items)
                OR pg_stat_get_xact_tuples_returned('dialoq.ready_group_group'::regclass) - v_group_read > 1000 + 20 * cardinality(v_groups)
            THEN
                v_notices := concat_ws(' ', v_notices, dialoq.dead_rows_notice());
            END IF;
            v_rank_read := NULL;
        END IF;
        -- Each group has just the one row that it was found by. Rows of one group can be of one age; those of two groups can
        -- only after a MOVE.
        IF v_are_distinct AND v_held_groups = v_groups AND v_held_oldest = v_oldest THEN
            v_rows := v_held;
        ELSE
            SELECT array_agg(d.id), array_agg(d.oldest), array_agg(d.row) INTO v_groups, v_oldest, v_rows
            FROM (
                SELECT g.id, min(g.oldest) AS oldest, min(g.row) AS row
                FROM unnest(v_groups || v_held_groups, v_oldest || v_held_oldest,
                    array_fill(NULL::tid, ARRAY[cardinality(v_groups)]) || v_held) AS g (id, oldest, row)
                GROUP BY g.id ORDER BY min(g.oldest)
            ) AS d;
        END IF;
        -- One message of each group for one caller each, if the group is one conversation without pending messages. With few
        -- groups that would take many rounds. The order is that of rules/receive_order.sql for one message; one statement, because
        -- through the arrays below it would be several.
        IF v_is_plain AND cardinality(v_groups) >= cardinality(v_items) / 2 THEN
            RETURN QUERY
            WITH first AS MATERIALIZED (
                SELECT c.row, c.endpoint_id, c.group_id, c.handle, c.service_id, c.service_contract_id,
                    m.row AS message, m.next, row_number() OVER () AS place
                FROM (
                    SELECT g.row, b.oldest, g.id AS group_id, e.*, count(*) OVER (PARTITION BY g.place) AS endpoints
                    FROM unnest(v_rows, v_oldest, v_groups) WITH ORDINALITY AS g (row, oldest, id, place)
                    CROSS JOIN LATERAL dialoq.oldest_row(g.id, g.oldest, v_floor) AS b
                    CROSS JOIN LATERAL (
                        SELECT e.endpoint_id, e.conversation_handle AS handle, e.service_id, e.service_contract_id,
                            e.rollbacks = 0 AND (e.due_at IS NULL OR e.due_at > v_now) AND NOT e.is_quarantined
                                AND e.moved_recheck_id IS NULL AND e.state IN ('SO', 'CO') AND 10 - e.priority = v_top AND e.service_id = ANY (v_services) AS is_plain
                        FROM dialoq.conversation_endpoint AS e WHERE e.conversation_group_id = g.id OFFSET 0
                    ) AS e
                ) AS c
                CROSS JOIN LATERAL (
                    SELECT (array_agg(q.row))[1] AS row, min(q.queuing_order) AS first,
                        nullif(max(q.queuing_order), min(q.queuing_order)) AS next
                    FROM (
                        SELECT n.ctid AS row, n.queuing_order FROM dialoq.queue_message AS n
                        WHERE n.endpoint_id = c.endpoint_id AND n.delivery_class = 0 AND n.queuing_order >= c.oldest
                        ORDER BY n.queuing_order
                        LIMIT 2
                    ) AS q
                ) AS m
                WHERE c.is_plain AND c.endpoints = 1 AND m.row IS NOT NULL AND (NOT v_is_alone OR m.first <= v_oldest[1]) AND (
                    NOT v_asks_each AND NOT EXISTS (SELECT FROM dialoq.queue_message AS n WHERE n.message_type_id IN (1, 2, 3))
                    OR (SELECT f.message_type_id FROM dialoq.first_system(c.endpoint_id) AS f) IS NULL)
            ), gone AS MATERIALIZED (
                -- Only the holder of a group's lock removes its messages, so a place is still that of its message.
                DELETE FROM dialoq.queue_message AS m USING first AS f WHERE m.ctid = f.message
                RETURNING f.*, m.queuing_order, m.sequence, m.message_type_id, m.body, m.message_id, m.enqueued_at, m.trace
            ), unready AS (
                DELETE FROM dialoq.ready_group AS r USING first AS f WHERE r.ctid = f.row
            ), ready AS (
                INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
                SELECT v_queue_id, v_top, f.next, f.group_id, v_latest FROM first AS f WHERE f.next IS NOT NULL
            ), names AS MATERIALIZED (
                SELECT d.*, n.*
                FROM (SELECT DISTINCT g.service_id, g.service_contract_id, g.message_type_id FROM gone AS g) AS d
                CROSS JOIN LATERAL dialoq.message_names(d.service_id, d.service_contract_id, d.message_type_id) AS n
            )
            SELECT v_items[g.place], 1, 10 - v_top, g.queuing_order, g.group_id, g.handle, g.sequence, n.service, g.service_id,
                n.contract, g.service_contract_id, n.message_type, g.message_type_id, n.validation, g.body, g.message_id,
                g.enqueued_at, g.trace,
                CASE WHEN g.place = 1 THEN dialoq.publish_notices(concat_ws(' ', v_notices,
                    CASE WHEN EXISTS (SELECT FROM first AS f WHERE f.next IS NOT NULL) THEN 'q:' || v_queue_id::text END)) END
            FROM gone AS g
            JOIN names AS n ON n.message_type_id = g.message_type_id AND n.service_id = g.service_id
                AND n.service_contract_id = g.service_contract_id
            ORDER BY g.place;
            GET DIAGNOSTICS v_served = ROW_COUNT;
            IF v_served > 0 THEN
                v_is_any := true;
                v_notices := NULL;
                v_items := v_items[v_served + 1:];
                v_tops := v_tops[v_served + 1:];
                v_is_plain := v_served = cardinality(v_groups);
                IF v_is_plain AND cardinality(v_held) > v_served THEN
                    DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (v_held);
                END IF;
                v_past_top := v_start_top;
                v_past := v_start;
                v_past_groups := '{}';
                CONTINUE;
            END IF;
            v_is_plain := false;
        END IF;
        IF v_is_alone THEN
            -- The messages that a row names may have been received while a sender relied on the row.
            SELECT k.oldest INTO v_age FROM dialoq.group_rank(v_groups[1], v_queue_id) AS k WHERE k.rank_from_top = v_top;
            IF v_age > v_oldest[1] THEN
                DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (v_held);
                INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
                VALUES (v_queue_id, v_top, v_age, v_groups[1], v_latest);
                v_younger_groups := v_younger_groups || v_groups[1];
                v_younger_oldest := v_younger_oldest || v_age;
                v_is_plain := 1 = ALL (v_tops) AND NOT v_retains;
                CONTINUE;
            END IF;
        END IF;
        -- The number of messages wanted of each group. Each of its callers gets the messages that the callers before it leave.
        v_most := CASE WHEN cardinality(v_groups) >= cardinality(v_items) THEN v_tops ELSE ARRAY(
            SELECT sum(i.top)::bigint FROM unnest(v_tops) WITH ORDINALITY AS i (top, place)
            GROUP BY (i.place - 1) % cardinality(v_groups) ORDER BY (i.place - 1) % cardinality(v_groups)) END;
        LOOP
            WITH seen AS MATERIALIZED (
                SELECT g.place AS group_place, e.endpoint_id, e.conversation_handle, e.service_id, e.service_contract_id,
                    e.rank_from_top, e.has_pending, m.row, m.delivery_class, m.queuing_order, row_number() OVER w AS place,
                    -- A group whose row promises too much waits for its level.
                    first_value(e.rank_from_top) OVER w <= v_top AS is_served,
                    row_number() OVER w <= g.most AND first_value(e.rank_from_top) OVER w <= v_top AS is_taken
                FROM unnest(v_groups, v_most, v_oldest) WITH ORDINALITY AS g (id, most, oldest, place)
                CROSS JOIN LATERAL dialoq.oldest_row(g.id, g.oldest, v_floor) AS b
                CROSS JOIN LATERAL (
                    SELECT c.endpoint_id, c.conversation_handle, c.service_id, c.service_contract_id,
                        (10 - c.priority)::smallint AS rank_from_top,
                        c.rollbacks <> 0 OR c.due_at <= v_now OR dialoq.effective_state(c.state, m.message_type_id) <> c.state
                            AS has_pending, m.message_type_id IS NOT NULL AS has_system,
                        CASE WHEN c.moved_recheck_id IS NULL THEN b.oldest ELSE 0 END AS oldest
                    FROM dialoq.conversation_endpoint AS c
                    CROSS JOIN LATERAL dialoq.first_system(c.endpoint_id) AS m
                    WHERE c.conversation_group_id = g.id AND NOT c.is_quarantined AND c.state NOT IN ('DO', 'CD')
                    OFFSET 0
                ) AS e
                CROSS JOIN LATERAL (
                    (SELECT n.ctid AS row, n.delivery_class, n.queuing_order FROM dialoq.queue_message AS n
                    WHERE e.has_system AND n.endpoint_id = e.endpoint_id AND n.delivery_class >= 1
                    ORDER BY n.delivery_class DESC, n.queuing_order
                    LIMIT g.most + 1)
                    UNION ALL
                    -- No message of the group is older than its rows, so deleted rows that an old snapshot keeps are passed over.
                    (SELECT n.ctid, n.delivery_class, n.queuing_order FROM dialoq.queue_message AS n
                    WHERE n.endpoint_id = e.endpoint_id AND n.delivery_class = 0 AND n.queuing_order >= e.oldest
                    ORDER BY n.queuing_order
                    LIMIT g.most + 1)
                ) AS m
                WHERE e.service_id = ANY (v_services) AND g.most > 0
                WINDOW w AS (
                    PARTITION BY g.place ORDER BY e.rank_from_top, e.conversation_handle, m.delivery_class DESC, m.queuing_order)
            ), taken AS MATERIALIZED (
                SELECT s.*, CASE WHEN s.place <= v_tops[s.group_place] THEN v_items[s.group_place] ELSE (
                    SELECT i.item
                    FROM (
                        SELECT v_items[p.place] AS item, p.place, sum(v_tops[p.place]) OVER (ORDER BY p.place) AS up_to
                        FROM generate_series(s.group_place, cardinality(v_items), cardinality(v_groups)) AS p (place)
                    ) AS i
                    WHERE i.up_to >= s.place ORDER BY i.place LIMIT 1) END AS item
                FROM seen AS s
                WHERE s.is_taken
            )
            SELECT t.rows, t.items, t.levels, t.groups, t.handles, t.services, t.contracts, r.groups, r.oldest, r.wrong, r.seen, n.pending
            INTO v_messages, v_takers, v_levels, v_taken_groups, v_handles, v_taken_services, v_contracts,
                v_rest_groups, v_rest_oldest, v_wrong, v_seen, v_pending
            FROM (
                SELECT array_agg(o.row) AS rows, array_agg(o.item) AS items, array_agg(o.rank_from_top) AS levels,
                    array_agg(v_groups[o.group_place]) AS groups, array_agg(o.conversation_handle) AS handles,
                    array_agg(o.service_id) AS services, array_agg(o.service_contract_id) AS contracts
                FROM (SELECT * FROM taken AS t ORDER BY t.item, t.place) AS o
            ) AS t
            CROSS JOIN (
                SELECT array_agg(g.id) FILTER (WHERE g.is_plain AND g.oldest IS NOT NULL) AS groups,
                    array_agg(g.oldest) FILTER (WHERE g.is_plain AND g.oldest IS NOT NULL) AS oldest,
                    array_agg(g.id) FILTER (WHERE NOT g.is_plain) AS wrong, array_agg(g.id) AS seen
                FROM (
                    SELECT v_groups[s.group_place] AS id, min(s.queuing_order) FILTER (WHERE NOT s.is_taken) AS oldest,
                        bool_and(s.is_taken OR s.rank_from_top = v_top AND s.delivery_class = 0) AS is_plain
                    FROM seen AS s GROUP BY s.group_place
                ) AS g
            ) AS r
            CROSS JOIN (SELECT array_agg(DISTINCT s.endpoint_id) AS pending FROM seen AS s WHERE s.has_pending AND s.is_served) AS n;
            EXIT WHEN v_pending IS NULL;
            -- Pending messages and events are applied first.
            v_pending := dialoq.apply_ends(v_pending, v_now);
            -- An end changes nothing of what was seen.
            EXIT WHEN cardinality(v_pending) = 0;
            FOREACH v_id IN ARRAY v_pending LOOP
                UPDATE dialoq.conversation_endpoint AS e SET rollbacks = 0
                WHERE e.rollbacks <> 0 AND e.conversation_group_id = (
                    SELECT c.conversation_group_id FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = v_id);
                v_notices := concat_ws(' ', v_notices, dialoq.apply_pending(v_id));
            END LOOP;
            -- If the clock was set back meanwhile, what was due then is not, and stays so for as long.
            v_now := least(v_now, dialoq.current_time_utc());
        END LOOP;
        IF coalesce(cardinality(v_seen), 0) < cardinality(v_groups) THEN
            -- Some groups are empty, or their service has moved to another queue, or a row was wrong.
            v_wrong := v_wrong || ARRAY(
                SELECT g.id FROM unnest(v_groups) AS g (id) WHERE NOT g.id = ANY (coalesce(v_seen, '{}')));
        END IF;
        IF v_retains AND v_messages IS NOT NULL THEN
            PERFORM dialoq.retain_received(v_messages);
        END IF;
        v_notices := dialoq.publish_notices(concat_ws(' ', v_notices,
            CASE WHEN v_rest_groups IS NOT NULL OR v_wrong IS NOT NULL THEN 'q:' || v_queue_id::text END));
        RETURN QUERY
        WITH gone AS MATERIALIZED (
            -- Only the holder of a group's lock removes its messages, so a place is still that of its message.
            DELETE FROM dialoq.queue_message AS m
            USING unnest(v_messages, v_takers, v_levels, v_taken_groups, v_handles, v_taken_services, v_contracts)
                WITH ORDINALITY AS t (row, item, rank_from_top, group_id, handle, service_id, service_contract_id, place)
            WHERE m.ctid = t.row
            RETURNING t.*, m.queuing_order, m.sequence, m.message_type_id, m.body, m.message_id, m.enqueued_at, m.trace
        ), names AS MATERIALIZED (
            SELECT d.*, n.*
            FROM (SELECT DISTINCT g.service_id, g.service_contract_id, g.message_type_id FROM gone AS g) AS d
            CROSS JOIN LATERAL dialoq.message_names(d.service_id, d.service_contract_id, d.message_type_id) AS n
        )
        SELECT g.item, 1, 10 - g.rank_from_top, g.queuing_order, g.group_id, g.handle, g.sequence, n.service, g.service_id,
            n.contract, g.service_contract_id, n.message_type, g.message_type_id, n.validation, g.body, g.message_id,
            g.enqueued_at, g.trace, CASE WHEN g.place = 1 THEN v_notices END
        FROM gone AS g
        JOIN names AS n ON n.message_type_id = g.message_type_id AND n.service_id = g.service_id
            AND n.service_contract_id = g.service_contract_id
        ORDER BY g.place;
        IF FOUND THEN
            v_notices := NULL;
        END IF;
        DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (v_held);
        IF v_rest_groups IS NOT NULL THEN
            INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
            SELECT v_queue_id, v_top, r.oldest, r.group_id, v_latest FROM unnest(v_rest_groups, v_rest_oldest) AS r (group_id, oldest);
        END IF;
        IF v_wrong IS NOT NULL THEN
            INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
            SELECT k.queue_id, k.rank_from_top, k.oldest, k.group_id, v_latest FROM dialoq.group_ranks(v_wrong) AS k;
        END IF;
        v_is_any := v_is_any OR v_messages IS NOT NULL;
        EXIT WHEN cardinality(v_messages) = cardinality(v_items) AND 1 = ALL (v_tops);
        IF v_messages IS NOT NULL THEN
            SELECT array_agg(i.item ORDER BY i.place), array_agg(i.top ORDER BY i.place) INTO v_items, v_tops
            FROM unnest(v_items, v_tops) WITH ORDINALITY AS i (item, top, place)
            LEFT JOIN (SELECT DISTINCT t.item FROM unnest(v_takers) AS t (item)) AS s ON s.item = i.item
            WHERE s.item IS NULL;
            -- The groups that have more are where they were, or behind.
            v_past := CASE v_past_top WHEN v_start_top THEN v_start ELSE -1 END;
            v_past_groups := '{}';
        END IF;
    END LOOP;
    IF v_is_any AND v_has_rollbacks THEN
        PERFORM dialoq.forget_rollbacks(v_queue_id);
    END IF;
    -- No message carries the notices.
    IF v_notices IS NOT NULL THEN
        PERFORM dialoq.send_notices(v_notices);
    END IF;
END $$;
