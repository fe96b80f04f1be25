-- The state that a waiting client polls: the version of the definitions, the next event, the queues with messages.
-- Takes: nothing
-- Gives: catalog_version; due_at (NULL: no event); ready_queues, '<queue_id>:<groups, 1000 at most> ...' of the groups that
--     no session holds, and of the jobs that are ready, where limits hold some back one; held_queues, '<queue_id>:<messages> ...' of the groups that a session holds, with what the holder has
--     received and not committed, 1000 of a group at most; has_locked, whether there are such groups; now_at, the server's
--     clock
-- Errors: none
-- Locks: none
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.poll()
RETURNS TABLE (catalog_version bigint, due_at timestamptz, ready_queues text, held_queues text, has_locked boolean, now_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_locked bigint[];
    v_queue_id integer;
    v_floor bigint;
    v_groups uuid[];
    v_ready bigint;
    v_held bigint;
    v_queues text := '';
    v_held_queues text := '';
    v_now timestamptz := dialoq.current_time_utc();
    -- While receives are held back, clients go on polling: the notice of the hold's end may be lost with the process that owes it.
    v_has_locked boolean := EXISTS (
        SELECT FROM dialoq.service_queue AS q WHERE q.receives_held_until > v_now AND q.receives_held_until <= v_now + interval '60 s');
    w dialoq.work_queue;
BEGIN
    -- While a definition holds receives back, nothing of a queue is ready.
    FOR v_queue_id IN
        SELECT q.queue_id FROM dialoq.service_queue AS q
        WHERE (q.receives_held_until > v_now AND q.receives_held_until <= v_now + interval '60 s') IS NOT TRUE ORDER BY q.queue_id
    LOOP
        v_floor := (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1);
        v_groups := ARRAY(
            SELECT c.group_id FROM dialoq.candidates(v_queue_id, v_floor, -1::smallint, -1, '{}', 10::smallint) AS c LIMIT 1000);
        CONTINUE WHEN cardinality(v_groups) = 0;
        IF v_locked IS NULL THEN
            v_locked := ARRAY(
                SELECT l.classid::bigint << 32 | l.objid::bigint FROM pg_locks AS l
                WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
                    AND l.classid::bigint >> 16 = 17513
                    AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()));
        END IF;
        -- A row of ready_group is only a hint. Of more than 50 some are true.
        IF cardinality(v_groups) <= 50 THEN
            v_groups := ARRAY(
                SELECT g.id FROM unnest(v_groups) AS g (id) WHERE EXISTS (SELECT FROM dialoq.group_rank(g.id, v_queue_id)));
        END IF;
        SELECT count(DISTINCT g.id) FILTER (WHERE NOT dialoq.group_key(g.id) = ANY (v_locked)),
            v_has_locked OR coalesce(bool_or(dialoq.group_key(g.id) = ANY (v_locked)), false)
        INTO v_ready, v_has_locked
        FROM unnest(v_groups) AS g (id);
        IF v_ready > 0 THEN
            v_queues := concat_ws(' ', nullif(v_queues, ''), v_queue_id::text || ':' || v_ready::text);
        END IF;
        CONTINUE WHEN NOT v_has_locked;
        SELECT sum(c.messages) INTO v_held
        FROM (
            SELECT h.id, o.oldest
            FROM (SELECT DISTINCT g.id FROM unnest(v_groups) AS g (id) WHERE dialoq.group_key(g.id) = ANY (v_locked)) AS h
            CROSS JOIN LATERAL (
                -- NULL if the holder has taken the last message since the groups were read: then none is counted.
                SELECT min(r.oldest) AS oldest FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= h.id AND (r.conversation_group_id, r.generation) >= (h.id, v_floor)
            ) AS o
        ) AS g
        CROSS JOIN LATERAL (
            SELECT least(coalesce(sum(m.messages), 0), 1000) AS messages
            FROM (
                SELECT e.endpoint_id, CASE WHEN e.moved_recheck_id IS NULL THEN g.oldest ELSE 0 END AS oldest FROM dialoq.conversation_endpoint AS e
                JOIN dialoq.service AS s ON s.service_id = e.service_id
                WHERE e.conversation_group_id = g.id AND s.queue_id = v_queue_id AND NOT e.is_quarantined
                    AND e.state NOT IN ('DO', 'CD')
                LIMIT 1000
            ) AS e
            CROSS JOIN LATERAL (
                -- As in group_rank: messages that were received before may stay for an old snapshot, 5,000 in each of 1,000
                -- conversations after ten minutes. With those, this took minutes. Errors and DialogTimers stand before them in the index;
                -- by their types PostgreSQL 18 read all.
                SELECT (
                    SELECT count(*) FROM (
                        SELECT FROM dialoq.queue_message AS m
                        WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = 0 AND m.queuing_order >= e.oldest
                        LIMIT 1000) AS f
                ) + (
                    SELECT count(*) FROM dialoq.queue_message AS m
                    WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class >= 1) AS messages
            ) AS m
        ) AS c;
        IF v_held > 0 THEN
            v_held_queues := concat_ws(' ', nullif(v_held_queues, ''), v_queue_id::text || ':' || v_held::text);
        END IF;
    END LOOP;
    FOR w IN SELECT * FROM dialoq.work_queue AS q WHERE q.is_enabled ORDER BY q.queue_id LOOP
        IF dialoq.is_limited(w) THEN
            v_ready := dialoq.has_job_to_take(w, dialoq.current_time_utc())::integer;
        ELSE
            SELECT count(*) INTO v_ready
            FROM (
                SELECT FROM dialoq.job AS j WHERE j.queue_id = w.queue_id AND j.state = 1
                ORDER BY j.rank_from_top, j.take_order LIMIT 1000) AS f;
        END IF;
        IF v_ready > 0 THEN
            v_queues := concat_ws(' ', nullif(v_queues, ''), w.queue_id::text || ':' || v_ready::text);
        END IF;
    END LOOP;
    RETURN QUERY
    SELECT b.catalog_version,
        least((SELECT min(e.due_at) FROM dialoq.conversation_endpoint AS e),
            (SELECT j.due_at FROM dialoq.job AS j WHERE j.due_at IS NOT NULL AND j.holder IS NULL ORDER BY j.due_at LIMIT 1),
            (SELECT r.wake_at FROM dialoq.work_rate AS r WHERE r.wake_at IS NOT NULL ORDER BY r.wake_at LIMIT 1),
            (SELECT s.next_at FROM dialoq.work_schedule AS s WHERE s.next_at IS NOT NULL ORDER BY s.next_at LIMIT 1),
            (SELECT min(q.receives_held_until) FROM dialoq.service_queue AS q WHERE q.receives_held_until > v_now)),
        v_queues, v_held_queues, v_has_locked, coalesce(b.manual_now, clock_timestamp())
    FROM dialoq.broker AS b;
END $$;
