-- RECEIVE: takes messages of one conversation group out of a queue. Never waits.
-- Takes: the queue; how many at most (NULL: all of the group); the conversation or the group to take from (NULL: the best of
--     the queue that no other session holds); bounds of the level of that best group; whether age counts and not level
-- Gives: the messages in order of receipt, notices in the first
-- Errors: 8426, 8436, 9617, 60002, 60005
-- Locks: the group, without waiting
-- For: plain SQL
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
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
-- No sort puts many messages into their order: they come in that of the places by which they are deleted.
SET enable_tidscan = on AS $$
#variable_conflict use_column
DECLARE
    v_queue_id integer;
    v_gives boolean;
    v_is_held_back boolean := false;
    v_retains boolean;
    v_has_rollbacks boolean;
    v_now timestamptz;
    v_keeps_locks boolean := coalesce(current_setting('dialoq.session_locks', true) = '1', false);
    -- The row of ready_group by which a group is found, and all rows of the group.
    v_top smallint;
    v_from bigint;
    v_xid xid8;
    v_floor bigint;
    v_latest bigint;
    v_rank_read bigint;
    v_group_read bigint;
    v_notices text;
    v_is_plain boolean;
    v_held tid[];
    v_group uuid;
    v_only bigint;
    v_endpoint record;
    v_passed uuid[] := '{}';
    v_is_any boolean := p_conversation_handle IS NULL AND p_conversation_group_id IS NULL;
BEGIN
    SELECT q.queue_id, q.is_receive_enabled AND q.receives_held_until IS NULL, q.is_retention_enabled, coalesce(b.manual_now, clock_timestamp()),
        EXISTS (SELECT FROM dialoq.queue_rollback AS r WHERE r.queue_id = q.queue_id),
        (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)
    INTO v_queue_id, v_gives, v_retains, v_now, v_has_rollbacks, v_floor
    FROM dialoq.service_queue AS q CROSS JOIN dialoq.broker AS b
    WHERE q.folded_name = lower(p_queue COLLATE "C");
    IF v_gives IS NOT TRUE OR current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only') = 'on'
    THEN
        v_queue_id := dialoq.receivable(p_queue);
        v_is_held_back := dialoq.is_held_back(v_queue_id);
    END IF;
    IF coalesce(p_lowest, 1) < 1 OR coalesce(p_highest, 10) NOT BETWEEN coalesce(p_lowest, 1) AND 10 THEN
        PERFORM dialoq.fail(60005, format('the range of levels is %s to %s; it must be within 1 to 10, the lower first',
            coalesce(p_lowest, 1), coalesce(p_highest, 10)));
    END IF;
    IF (p_lowest > 1 OR p_highest < 10) AND (p_oldest OR NOT v_is_any) THEN
        PERFORM dialoq.fail(60005, format('the range of levels is %s to %s; it chooses a group by its level, so leave it out with p_oldest, a conversation or a group',
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
    IF p_top <= 0 OR v_is_held_back THEN
        RETURN;
    END IF;
    -- Most RECEIVEs find a group that is one conversation with nothing pending, by a row that names its first message. Such
    -- messages take the three statements below. The general way behind them takes twenty, and six times as long for one message.
    IF v_is_any AND p_oldest IS NOT TRUE AND NOT v_retains THEN
        v_rank_read := pg_stat_get_xact_tuples_returned('dialoq.ready_group_rank'::regclass);
        v_group_read := pg_stat_get_xact_tuples_returned('dialoq.ready_group_group'::regclass);
        -- A group is locked only if its row is right: this transaction may go on for long.
        SELECT c.rank_from_top, c.oldest, c.group_id, c.is_plain INTO v_top, v_from, v_group, v_is_plain
        FROM (
            SELECT r.*, f.is_free, k.is_plain, dialoq.group_key(r.group_id) AS key
            FROM dialoq.candidates(v_queue_id, v_floor, (10 - coalesce(p_highest, 10))::smallint, -1, '{}',
                (10 - coalesce(p_lowest, 1))::smallint) AS r
            CROSS JOIN LATERAL (SELECT dialoq.is_group_free(r.group_id) AS is_free OFFSET 0) AS f
            LEFT JOIN LATERAL (
                SELECT true AS is_plain
                FROM (
                    SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e
                    WHERE f.is_free AND e.conversation_group_id = r.group_id AND e.state IN ('SO', 'CO')
                        AND NOT e.is_quarantined AND e.moved_recheck_id IS NULL AND 10 - e.priority = r.rank_from_top
                    OFFSET 0
                ) AS e
                CROSS JOIN LATERAL (
                    SELECT FROM dialoq.queue_message AS m
                    WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = 0 AND m.queuing_order = r.oldest
                    OFFSET 0
                ) AS m
                LIMIT 1
            ) AS k ON true
        ) AS c
        WHERE CASE
            WHEN NOT c.is_free THEN false
            WHEN c.is_plain THEN pg_try_advisory_xact_lock(c.key) AND (NOT v_keeps_locks OR pg_try_advisory_lock(c.key))
            ELSE true
        END
        LIMIT 1;
        IF v_is_plain THEN
            v_xid := pg_current_xact_id();
            -- A statement of its own, so that the next one sees the message of every sender that relied on one of these rows.
            SELECT array_agg(h.row), (SELECT o.oldest FROM dialoq.oldest_row(v_group, v_from, v_floor) AS o), (
                    SELECT g.latest FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)
            INTO v_held, v_from, v_latest
            FROM (
                SELECT r.ctid AS row FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= v_group AND (r.conversation_group_id, r.generation) >= (v_group, v_floor)
                FOR UPDATE SKIP LOCKED
            ) AS h;
            IF pg_stat_get_xact_tuples_returned('dialoq.ready_group_rank'::regclass) - v_rank_read > 2000
                OR pg_stat_get_xact_tuples_returned('dialoq.ready_group_group'::regclass) - v_group_read > 1000
            THEN
                v_notices := dialoq.dead_rows_notice();
            END IF;
            IF p_top = 1 THEN
                RETURN QUERY
                WITH first AS MATERIALIZED (
                    SELECT e.endpoint_id, e.handle, e.service_id, e.service_contract_id, m.row, m.next
                    -- <receivable>
                    CROSS JOIN LATERAL (
                        SELECT (array_agg(q.row))[1] AS row, nullif(max(q.queuing_order), min(q.queuing_order)) AS next
                        FROM (
                            SELECT n.ctid AS row, n.queuing_order FROM dialoq.queue_message AS n
                            WHERE n.endpoint_id = e.endpoint_id AND n.delivery_class = 0 AND n.queuing_order >= v_from
                            ORDER BY n.queuing_order
                            LIMIT 2
                        ) AS q
                    ) AS m
                    WHERE e.is_plain AND e.endpoints = 1 AND m.row IS NOT NULL
                        AND (SELECT s.queue_id FROM dialoq.service AS s WHERE s.service_id = e.service_id) = v_queue_id
                        AND (SELECT f.message_type_id FROM dialoq.first_system(e.endpoint_id) AS f) IS NULL
                ), gone AS MATERIALIZED (
                    -- Only the holder of a group's lock removes its messages, so a place is still that of its message.
                    DELETE FROM dialoq.queue_message AS m USING first AS f WHERE m.ctid = f.row
                    RETURNING f.*, m.queuing_order, m.sequence, m.message_type_id, m.body, m.message_id, m.enqueued_at, m.trace
                ), unready AS (
                    DELETE FROM dialoq.ready_group AS r USING first AS f WHERE r.ctid = ANY (v_held)
                ), ready AS (
                    INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
                    SELECT v_queue_id, v_top, f.next, v_group, v_latest FROM first AS f WHERE f.next IS NOT NULL
                )
                SELECT 1, 10 - v_top, g.queuing_order, v_group, g.handle, g.sequence, n.service, g.service_id, n.contract,
                    g.service_contract_id, n.message_type, g.message_type_id, n.validation, g.body, g.message_id, g.enqueued_at,
                    g.trace, CASE WHEN g.next IS NOT NULL OR v_notices IS NOT NULL THEN dialoq.publish_notices(
                        concat_ws(' ', v_notices, CASE WHEN g.next IS NOT NULL THEN 'q:' || v_queue_id::text END)) END
                FROM gone AS g
                CROSS JOIN LATERAL dialoq.message_names(g.service_id, g.service_contract_id, g.message_type_id) AS n;
            ELSE
                RETURN QUERY
                WITH first AS MATERIALIZED (
                    SELECT e.endpoint_id, e.handle, e.service_id, e.service_contract_id, m.rows, m.first, m.next,
                        CASE WHEN m.next IS NOT NULL OR v_notices IS NOT NULL THEN dialoq.publish_notices(
                            concat_ws(' ', v_notices, CASE WHEN m.next IS NOT NULL THEN 'q:' || v_queue_id::text END)) END AS notices
                    -- <receivable>
                    CROSS JOIN LATERAL (
                        SELECT CASE WHEN count(*) > p_top THEN trim_array(array_agg(q.row), 1) ELSE array_agg(q.row) END AS rows,
                            min(q.queuing_order) AS first, CASE WHEN count(*) > p_top THEN max(q.queuing_order) END AS next
                        FROM (
                            SELECT n.ctid AS row, n.queuing_order FROM dialoq.queue_message AS n
                            WHERE n.endpoint_id = e.endpoint_id AND n.delivery_class = 0 AND n.queuing_order >= v_from
                            ORDER BY n.queuing_order
                            LIMIT least(p_top, 1000000000000) + 1
                        ) AS q
                    ) AS m
                    WHERE e.is_plain AND e.endpoints = 1 AND m.rows IS NOT NULL
                        AND (SELECT s.queue_id FROM dialoq.service AS s WHERE s.service_id = e.service_id) = v_queue_id
                        AND (SELECT f.message_type_id FROM dialoq.first_system(e.endpoint_id) AS f) IS NULL
                ), gone AS MATERIALIZED (
                    -- Only the holder of a group's lock removes its messages, so a place is still that of its message.
                    DELETE FROM dialoq.queue_message AS m
                    USING (SELECT u.row FROM first AS f CROSS JOIN LATERAL unnest(f.rows) AS u (row)) AS f
                    WHERE m.ctid = f.row
                    RETURNING m.queuing_order, m.sequence, m.message_type_id, m.body, m.message_id, m.enqueued_at, m.trace
                ), unready AS (
                    DELETE FROM dialoq.ready_group AS r USING first AS f WHERE r.ctid = ANY (v_held)
                ), ready AS (
                    INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
                    SELECT v_queue_id, v_top, f.next, v_group, v_latest FROM first AS f WHERE f.next IS NOT NULL
                ), type AS MATERIALIZED (
                    -- Once for each type, not for each message.
                    SELECT f.handle, f.service_id, f.service_contract_id, f.first, f.notices, d.message_type_id, n.*
                    FROM first AS f
                    CROSS JOIN (SELECT DISTINCT g.message_type_id FROM gone AS g) AS d
                    CROSS JOIN LATERAL dialoq.message_names(f.service_id, f.service_contract_id, d.message_type_id) AS n
                )
                -- In the order in which they were read and deleted: a sort takes a tenth of the time of the whole call.
                SELECT 1, 10 - v_top, g.queuing_order, v_group, t.handle, g.sequence, t.service, t.service_id, t.contract,
                    t.service_contract_id, t.message_type, g.message_type_id, t.validation, g.body, g.message_id, g.enqueued_at,
                    g.trace, CASE WHEN g.queuing_order = t.first THEN t.notices END
                FROM gone AS g
                CROSS JOIN LATERAL (SELECT * FROM type AS t WHERE t.message_type_id = g.message_type_id OFFSET 0) AS t;
            END IF;
            IF FOUND THEN
                IF v_has_rollbacks THEN
                    PERFORM dialoq.forget_rollbacks(v_queue_id);
                END IF;
                RETURN;
            END IF;
        END IF;
        v_group := NULL;
    END IF;
    LOOP
        IF v_is_any THEN
            v_group := dialoq.choose(v_queue_id, (10 - coalesce(p_highest, 10))::smallint,
                (10 - coalesce(p_lowest, 1))::smallint, p_oldest IS TRUE, v_passed);
            EXIT WHEN v_group IS NULL;
        ELSIF NOT EXISTS (
                -- An empty group is not locked. It has no row in ready_group, so none of its received messages is read.
                SELECT FROM dialoq.queue_message AS m JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
                WHERE e.conversation_group_id = v_group AND (v_only IS NULL OR e.endpoint_id = v_only)
                    AND NOT e.is_quarantined AND m.queuing_order >= CASE WHEN e.moved_recheck_id IS NULL THEN (
                        SELECT min(r.oldest) FROM dialoq.ready_group AS r
                        WHERE r.conversation_group_id <= v_group
                            AND (r.conversation_group_id, r.generation) >= (v_group, v_floor)) ELSE 0 END)
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
