-- The order of RECEIVE: the best level first, then the oldest message; or the oldest message alone. The order within
-- a group is in receive.sql.
-- Takes, Gives, Errors, Locks: see each function

-- The rows of the claim index in the order of RECEIVE, from a place on: those of the floor's generation and of the next one
-- (ready_group.sql). The planner puts this into the statement that calls it.
-- Takes: the queue; the floor of the generations; the place, a rank_from_top and an age; the groups already read at the place, because after a MOVE two
--     groups can have rows of one level and age; the last rank_from_top
CREATE OR REPLACE FUNCTION dialoq.candidates(
    p_queue_id integer, p_floor bigint, p_past_top smallint, p_past bigint, p_past_groups uuid[], p_to_top smallint)
RETURNS TABLE (rank_from_top smallint, oldest bigint, group_id uuid)
LANGUAGE sql STABLE AS $$
    SELECT r.rank_from_top, r.oldest, r.conversation_group_id
    FROM (
        -- Both are in order, so the server merges them.
        (SELECT o.rank_from_top, o.oldest, o.conversation_group_id
        FROM dialoq.ready_group AS o
        WHERE o.generation = p_floor
            AND o.queue_id = p_queue_id AND (o.rank_from_top, o.oldest) >= (p_past_top, p_past) AND o.rank_from_top <= p_to_top
        ORDER BY o.rank_from_top, o.oldest)
        UNION ALL
        (SELECT n.rank_from_top, n.oldest, n.conversation_group_id
        FROM dialoq.ready_group AS n
        WHERE n.generation = p_floor + 1
            AND n.queue_id = p_queue_id AND (n.rank_from_top, n.oldest) >= (p_past_top, p_past) AND n.rank_from_top <= p_to_top
        ORDER BY n.rank_from_top, n.oldest)
    ) AS r
    WHERE (r.rank_from_top, r.oldest) > (p_past_top, p_past) OR r.conversation_group_id <> ALL (p_past_groups)
    ORDER BY r.rank_from_top, r.oldest
    -- Without it the planner may lock every group of the queue before it sorts them.
    OFFSET 0
$$;

-- Chooses the best group of a queue that this transaction may take, and locks it. If a row of ready_group promises too much, the
-- group is tried at its true rank. The row of an empty group is removed, if no sender relies on it.
-- Takes: the queue, the bounds of the level (the lowest and the highest rank_from_top), whether age alone counts, groups to
--     pass over
-- Gives: the group; NULL if there is none
CREATE OR REPLACE FUNCTION dialoq.choose(
    p_queue_id integer, p_from_top smallint, p_to_top smallint, p_oldest boolean, p_passed uuid[]) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
    v_past_top smallint := p_from_top;
    v_past bigint := -1;
    -- The groups already read at this level and age. After a MOVE two groups can have rows of the same level and age.
    v_seen uuid[] := '{}';
    v_late_groups uuid[] := '{}';
    v_late_tops smallint[] := '{}';
    v_late_oldest bigint[] := '{}';
    v_late integer;
    v_floor bigint := (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1);
    v_has_risen boolean;
BEGIN
    LOOP
        IF p_oldest THEN
            SELECT * INTO v_row FROM dialoq.oldest_candidate(p_queue_id, v_past, v_seen, p_passed || v_late_groups);
        ELSE
            SELECT * INTO v_row
            FROM (
                -- The messages of a group that another session holds are not read: batches hold many groups.
                SELECT r.*, f.is_free, k.rank_from_top AS true_top, k.oldest AS true_oldest
                FROM dialoq.candidates(p_queue_id, v_floor, v_past_top, v_past, v_seen, p_to_top) AS r
                CROSS JOIN LATERAL (SELECT dialoq.is_group_free(r.group_id) AS is_free OFFSET 0) AS f
                LEFT JOIN LATERAL dialoq.group_rank(CASE WHEN f.is_free THEN r.group_id END, p_queue_id) AS k ON true
            ) AS c
            WHERE CASE
                WHEN NOT c.is_free OR c.group_id = ANY (p_passed) THEN false
                -- An empty group, or one whose true rank is worse: see below.
                WHEN c.true_top IS NULL OR (c.true_top, c.true_oldest) > (c.rank_from_top, c.oldest) THEN true
                WHEN c.true_top NOT BETWEEN p_from_top AND p_to_top THEN false
                ELSE dialoq.try_lock_group(c.group_id)
            END
            LIMIT 1;
        END IF;
        -- A group set aside above whose true rank comes before this row.
        v_late := NULL;
        SELECT l.place INTO v_late
        FROM unnest(v_late_groups, v_late_tops, v_late_oldest) WITH ORDINALITY AS l (group_id, top, oldest, place)
        WHERE v_row.oldest IS NULL OR CASE WHEN p_oldest THEN l.oldest <= v_row.oldest
            ELSE (l.top, l.oldest) <= (v_row.rank_from_top, v_row.oldest) END
        ORDER BY CASE WHEN p_oldest THEN 0 ELSE l.top END, l.oldest
        LIMIT 1;
        IF v_late IS NOT NULL THEN
            IF dialoq.try_lock_group(v_late_groups[v_late]) THEN
                RETURN v_late_groups[v_late];
            END IF;
            v_late_groups := v_late_groups[:v_late - 1] || v_late_groups[v_late + 1:];
            v_late_tops := v_late_tops[:v_late - 1] || v_late_tops[v_late + 1:];
            v_late_oldest := v_late_oldest[:v_late - 1] || v_late_oldest[v_late + 1:];
            CONTINUE;
        END IF;
        IF v_row.oldest IS NULL THEN
            SELECT f.p_floor, f.has_risen INTO v_floor, v_has_risen FROM dialoq.has_floor_risen(v_floor) AS f;
            IF NOT v_has_risen THEN
                RETURN NULL;
            END IF;
            v_past_top := p_from_top;
            v_past := -1;
            v_seen := '{}';
            CONTINUE;
        END IF;
        IF v_row.true_top IS NULL THEN
            PERFORM dialoq.delete_stale_ready_row(p_queue_id, v_row.rank_from_top, v_row.oldest, v_row.group_id);
        ELSIF p_oldest AND v_row.true_oldest > v_row.oldest
            OR NOT p_oldest AND (v_row.true_top, v_row.true_oldest) > (v_row.rank_from_top, v_row.oldest)
        THEN
            IF v_row.true_top BETWEEN p_from_top AND p_to_top AND NOT v_row.group_id = ANY (v_late_groups) THEN
                v_late_groups := v_late_groups || v_row.group_id;
                v_late_tops := v_late_tops || v_row.true_top;
                v_late_oldest := v_late_oldest || v_row.true_oldest;
            END IF;
        ELSE
            RETURN v_row.group_id;
        END IF;
        IF v_row.oldest > v_past OR NOT p_oldest AND v_row.rank_from_top > v_past_top THEN
            v_seen := '{}';
        END IF;
        v_seen := v_seen || v_row.group_id;
        v_past_top := v_row.rank_from_top;
        v_past := v_row.oldest;
    END LOOP;
END $$;

-- The next candidate if age alone counts: the first row of each level that the index has.
CREATE OR REPLACE FUNCTION dialoq.oldest_candidate(
    p_queue_id integer, p_past bigint, p_seen uuid[], p_passed uuid[], OUT rank_from_top smallint, OUT oldest bigint, OUT group_id uuid,
    OUT true_top smallint, OUT true_oldest bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_limit bigint;
BEGIN
    -- First the head of each level; all of them only if others hold every head.
    FOREACH v_limit IN ARRAY ARRAY[20, 9223372036854775807] LOOP
        SELECT c.rank_from_top, c.oldest, c.group_id, c.true_top, c.true_oldest
        INTO oldest_candidate.rank_from_top, oldest_candidate.oldest, oldest_candidate.group_id, oldest_candidate.true_top, oldest_candidate.true_oldest
        FROM (
            SELECT h.rank_from_top, h.oldest, h.group_id, k.rank_from_top AS true_top, k.oldest AS true_oldest
            FROM (
                SELECT r.rank_from_top, r.oldest, r.conversation_group_id AS group_id
                FROM (SELECT (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1) AS floor OFFSET 0) AS f
                CROSS JOIN generate_series(f.floor, f.floor + 1) AS l (generation)
                CROSS JOIN generate_series(0, 9) AS k (rank_from_top)
                CROSS JOIN LATERAL (
                    SELECT g.* FROM dialoq.ready_group AS g
                    WHERE g.generation = l.generation AND g.queue_id = p_queue_id AND g.rank_from_top = k.rank_from_top AND g.oldest >= p_past
                        AND (g.oldest > p_past OR g.conversation_group_id <> ALL (p_seen))
                    ORDER BY g.oldest
                    LIMIT v_limit
                ) AS r
                ORDER BY r.oldest
            ) AS h
            LEFT JOIN LATERAL dialoq.group_rank(h.group_id, p_queue_id) AS k ON true
            ORDER BY h.oldest
            OFFSET 0
        ) AS c
        WHERE CASE
            WHEN c.group_id = ANY (p_passed) THEN false
            WHEN c.true_top IS NULL OR c.true_oldest > c.oldest THEN true
            ELSE dialoq.try_lock_group(c.group_id)
        END
        LIMIT 1;
        EXIT WHEN oldest_candidate.oldest IS NOT NULL;
    END LOOP;
END $$;

-- The rank of a group in a queue; no row if it has no message to receive.
CREATE OR REPLACE FUNCTION dialoq.group_rank(p_group uuid, p_queue_id integer)
RETURNS TABLE (rank_from_top smallint, oldest bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer := 0;
    v_row record;
    v_order bigint;
BEGIN
    FOR v_row IN
        SELECT e.endpoint_id, (10 - e.priority)::smallint AS rank_from_top, CASE WHEN e.moved_recheck_id IS NULL THEN (
            -- No message of the group is older. Older ones that were received may stay for an old snapshot. Without a row there is none:
            -- those that were received would all be read, 5,000 in each of 1,000 conversations after ten minutes.
            SELECT min(r.oldest) FROM dialoq.ready_group AS r
            WHERE r.conversation_group_id <= p_group AND (r.conversation_group_id, r.generation) >= (p_group, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)))
            ELSE 0 END AS age
        FROM dialoq.conversation_endpoint AS e
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.conversation_group_id = p_group AND NOT e.is_quarantined AND e.state NOT IN ('DO', 'CD')
            AND s.queue_id = p_queue_id
    LOOP
        SELECT o.oldest INTO v_order FROM dialoq.oldest_message(v_row.endpoint_id, v_row.age) AS o;
        IF v_order IS NOT NULL THEN
            rank_from_top := least(rank_from_top, v_row.rank_from_top);
            oldest := least(oldest, v_order);
        END IF;
    END LOOP;
    IF oldest IS NOT NULL THEN
        RETURN NEXT;
    END IF;
END $$;

-- The ranks of groups: every queue and level at which they have messages to receive, and the oldest message of each group.
-- Takes: the groups; whether their rows in ready_group are right, as in rebuild_ready_rows
CREATE OR REPLACE FUNCTION dialoq.group_ranks(p_groups uuid[], p_are_right boolean DEFAULT false)
RETURNS TABLE (group_id uuid, queue_id integer, rank_from_top smallint, oldest bigint)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT w.group_id, w.queue_id, w.rank_from_top, min(min(w.oldest)) OVER (PARTITION BY w.group_id)
    FROM (
        SELECT e.conversation_group_id AS group_id, s.queue_id, (10 - e.priority)::smallint AS rank_from_top, o.oldest
        FROM unnest(p_groups) AS g (id)
        CROSS JOIN LATERAL (
            SELECT c.*, CASE WHEN p_are_right AND c.moved_recheck_id IS NULL THEN (
                    SELECT coalesce(min(r.oldest), 0) FROM dialoq.ready_group AS r
                    WHERE r.conversation_group_id <= g.id AND (r.conversation_group_id, r.generation) >= (g.id, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)))
                ELSE 0 END AS age
            FROM dialoq.conversation_endpoint AS c WHERE c.conversation_group_id = g.id OFFSET 0
        ) AS e
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        CROSS JOIN LATERAL dialoq.oldest_message(e.endpoint_id, e.age) AS o
        WHERE NOT e.is_quarantined AND e.state NOT IN ('DO', 'CD') AND s.queue_id <> 0
        OFFSET 0
    ) AS w
    WHERE w.oldest IS NOT NULL
    GROUP BY w.group_id, w.queue_id, w.rank_from_top;
END $$;

-- The oldest message in the queue of an endpoint from this queuing_order on, NULL if there is none. One read of the index for each
-- delivery class.
CREATE OR REPLACE FUNCTION dialoq.oldest_message(p_endpoint_id bigint, p_from bigint) RETURNS TABLE (oldest bigint)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT least(
        (SELECT m.queuing_order FROM dialoq.queue_message AS m
            WHERE m.endpoint_id = p_endpoint_id AND m.delivery_class = 0 AND m.queuing_order >= p_from ORDER BY m.queuing_order LIMIT 1),
        (SELECT m.queuing_order FROM dialoq.queue_message AS m
            WHERE m.endpoint_id = p_endpoint_id AND m.delivery_class = 1 AND m.queuing_order >= p_from ORDER BY m.queuing_order LIMIT 1),
        (SELECT m.queuing_order FROM dialoq.queue_message AS m
            WHERE m.endpoint_id = p_endpoint_id AND m.delivery_class = 2 AND m.queuing_order >= p_from ORDER BY m.queuing_order LIMIT 1))
$$;
