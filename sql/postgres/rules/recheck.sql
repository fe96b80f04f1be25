-- The recheck of an endpoint once every transaction that runs now is over: one of them may have written for the endpoint
-- before it could see that the endpoint has ended, moved or been erased. tick runs it.
-- Takes, Gives, Errors, Locks: see each function

-- Requests a recheck of an endpoint. The transaction has a number before the request has an id (turn_generation).
-- Takes: the endpoint; whether a message may be hidden until then (find_hidden)
CREATE OR REPLACE FUNCTION dialoq.request_recheck(p_endpoint_id bigint, p_may_hide boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_xid xid8 := pg_current_xact_id();
BEGIN
    INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at, may_hide) VALUES (p_endpoint_id, clock_timestamp(), p_may_hide);
END $$;

-- The same for an endpoint that moves to another group.
-- Gives: the request's id
CREATE OR REPLACE FUNCTION dialoq.request_recheck_of_moved(p_endpoint_id bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_xid xid8 := pg_current_xact_id();
    v_id bigint;
BEGIN
    INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at, may_hide) VALUES (p_endpoint_id, clock_timestamp(), true)
    RETURNING recheck_id INTO v_id;
    RETURN v_id;
END $$;

-- The id of the 10,000th request, up to which tick looks for those that it can do now. While a transaction stays open, all requests of
-- its time wait for its end: of a million, each tick read all for 2 s, and the next one came at once.
CREATE OR REPLACE FUNCTION dialoq.recheck_up_to() RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((
        SELECT u.recheck_id FROM dialoq.recheck_queue AS u
        WHERE u.recheck_id >= dialoq.recheck_from() ORDER BY u.recheck_id OFFSET 9999 LIMIT 1), 9223372036854775807);
END $$;

-- Rechecks an endpoint. If it is gone, its late messages are removed. Otherwise pending messages are applied, messages that can
-- be delivered leave the transmission queue, and the group's rows of ready_group are rebuilt.
-- Gives: whether it is settled; false if another transaction holds the group.
CREATE OR REPLACE FUNCTION dialoq.recheck(p_endpoint_id bigint, OUT is_done boolean, OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    e dialoq.conversation_endpoint;
BEGIN
    IF p_endpoint_id = 0 THEN
        SELECT d.is_done, d.notices INTO is_done, notices FROM dialoq.recheck_definitions() AS d;
        RETURN;
    END IF;
    SELECT l.is_locked, l.notices INTO is_done, notices FROM dialoq.lock_endpoint(p_endpoint_id, false) AS l;
    IF is_done IS NULL THEN
        is_done := false;
        RETURN;
    END IF;
    IF NOT is_done THEN
        is_done := true;
        DELETE FROM dialoq.queue_message AS m WHERE m.endpoint_id = p_endpoint_id;
        RETURN;
    END IF;
    notices := concat_ws(' ', notices, dialoq.apply_pending(p_endpoint_id), dialoq.redeliver(p_endpoint_id));
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id;
    IF e.endpoint_id IS NOT NULL AND dialoq.rebuild_ready_rows(e.conversation_group_id) THEN
        notices := concat_ws(' ', notices, (SELECT 'q:' || s.queue_id::text FROM dialoq.service AS s WHERE s.service_id = e.service_id));
    END IF;
END $$;

-- The notice of a request that may hide a message: tick looks for it within a second. At full seconds, so that the requests of many SENDs
-- make one notice.
CREATE OR REPLACE FUNCTION dialoq.recheck_notice() RETURNS text
LANGUAGE sql AS $$
    SELECT dialoq.due_notice(date_trunc('second', dialoq.current_time_utc()) + interval '1 second')
$$;

-- The endpoints of which a recheck would announce or deliver a message now. A recheck waits for every transaction of the server that has
-- a number, also for one that has nothing to do with the broker: while one was open for hours, the message of a SEND that a MOVE had met
-- was not received for hours. So the messages that can be seen are looked for before, and the request stays for those that
-- cannot. Of more than 500 requests the first 500 are looked at, and 500 from one of them on that chance chooses. It chooses among the
-- requests and not among their ids: those of conversations that have ended lie between, a million of them, and a request that chance
-- finds by its id is nearly always the first one behind a gap.
-- Gives: the endpoints; 0 if rows of ready_group may be in a queue that their service has left
CREATE OR REPLACE FUNCTION dialoq.find_hidden() RETURNS SETOF bigint
LANGUAGE plpgsql SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
    v_floor bigint;
    v_from bigint := dialoq.recheck_from();
    v_count bigint;
    v_are_definitions boolean;
    v_place bigint;
BEGIN
    SELECT count(*), bool_or(u.endpoint_id = 0) INTO v_count, v_are_definitions
    FROM dialoq.recheck_queue AS u WHERE u.may_hide AND u.recheck_id >= v_from;
    IF v_count = 0 THEN
        RETURN;
    END IF;
    v_floor := (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1);
    IF v_are_definitions THEN
        RETURN NEXT 0;
    END IF;
    v_place := CASE WHEN v_count > 500 THEN floor(random() * v_count) ELSE v_count END;
    RETURN QUERY
    SELECT u.endpoint_id
    FROM (
        (SELECT n.endpoint_id FROM dialoq.recheck_queue AS n WHERE n.may_hide AND n.recheck_id >= v_from ORDER BY n.recheck_id LIMIT 500)
        UNION
        (SELECT n.endpoint_id FROM dialoq.recheck_queue AS n WHERE n.may_hide AND n.recheck_id >= v_from
        ORDER BY n.recheck_id OFFSET v_place LIMIT 500)
    ) AS u
    CROSS JOIN LATERAL (
        SELECT e.conversation_group_id, e.priority, e.state, e.is_quarantined, s.queue_id
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.endpoint_id = u.endpoint_id
        OFFSET 0
    ) AS e
    WHERE NOT e.is_quarantined AND e.state NOT IN ('DO', 'CD') AND e.queue_id <> 0
            AND EXISTS (SELECT FROM dialoq.queue_message AS m WHERE m.endpoint_id = u.endpoint_id OFFSET 0)
            AND NOT EXISTS (
                SELECT FROM dialoq.ready_group AS r
                WHERE r.conversation_group_id <= e.conversation_group_id
                    AND (r.conversation_group_id, r.generation) >= (e.conversation_group_id, v_floor)
                    AND r.queue_id + 0 = e.queue_id AND r.rank_from_top + 0 = 10 - e.priority OFFSET 0)
        OR e.state NOT IN ('DI', 'ER') AND EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = u.endpoint_id OFFSET 0)
            AND (SELECT w.way FROM dialoq.route(u.endpoint_id) AS w) <> 'delayed';
END $$;

-- Moves rows of ready_group in a queue that their service has left to the queue of the service. It looks at 100 rows of each queue and
-- level from the first one on, and at 100 from an age on that chance chooses, because messages of other services may stand before. The
-- queues are those of the rows: the one that a service has left may be dropped.
-- Gives: notices; NULL if there was none
CREATE OR REPLACE FUNCTION dialoq.move_rows_left_behind() RETURNS text
LANGUAGE sql SET enable_bitmapscan = off SET enable_sort = off AS $$
    WITH RECURSIVE line AS (
        -- Each step is one read of the index, whatever lies between.
        SELECT f.*
        FROM (SELECT n.floor FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1) AS g
        CROSS JOIN generate_series(g.floor, g.floor + 1) AS l (generation)
        CROSS JOIN LATERAL (
            SELECT o.generation, o.queue_id, o.rank_from_top, o.oldest FROM dialoq.ready_group AS o
            WHERE o.generation = l.generation
            ORDER BY o.queue_id, o.rank_from_top, o.oldest
            LIMIT 1
        ) AS f
        UNION ALL
        SELECT f.*
        FROM line AS p
        CROSS JOIN LATERAL (
            SELECT o.generation, o.queue_id, o.rank_from_top, o.oldest FROM dialoq.ready_group AS o
            WHERE o.generation = p.generation AND (o.queue_id, o.rank_from_top) > (p.queue_id, p.rank_from_top)
            ORDER BY o.queue_id, o.rank_from_top, o.oldest
            LIMIT 1
        ) AS f
    ), seen AS MATERIALIZED (
        SELECT r.place, l.queue_id, r.group_id
        FROM line AS l
        CROSS JOIN LATERAL (
            SELECT l.oldest + (random() * (o.oldest - l.oldest))::bigint AS age FROM dialoq.ready_group AS o
            WHERE o.generation = l.generation AND o.queue_id = l.queue_id AND o.rank_from_top = l.rank_from_top
            ORDER BY o.oldest DESC
            LIMIT 1
        ) AS a
        CROSS JOIN LATERAL (
            (SELECT o.ctid AS place, o.conversation_group_id AS group_id FROM dialoq.ready_group AS o
            WHERE o.generation = l.generation AND o.queue_id = l.queue_id AND o.rank_from_top = l.rank_from_top
            ORDER BY o.oldest
            LIMIT 100)
            UNION
            (SELECT o.ctid, o.conversation_group_id FROM dialoq.ready_group AS o
            WHERE o.generation = l.generation AND o.queue_id = l.queue_id AND o.rank_from_top = l.rank_from_top AND o.oldest >= a.age
            ORDER BY o.oldest
            LIMIT 100)
        ) AS r
    ), wrong AS (
        SELECT n.ctid AS place, s.queue_id
        FROM seen AS r
        CROSS JOIN LATERAL (
            SELECT e.service_id FROM dialoq.conversation_endpoint AS e WHERE e.conversation_group_id = r.group_id LIMIT 1
        ) AS e
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        JOIN dialoq.ready_group AS n ON n.ctid = r.place
        WHERE s.queue_id <> r.queue_id
        FOR UPDATE OF n SKIP LOCKED
    ), moved AS (
        UPDATE dialoq.ready_group AS r SET queue_id = w.queue_id FROM wrong AS w WHERE r.ctid = w.place
        RETURNING r.queue_id
    )
    SELECT string_agg(DISTINCT 'q:' || m.queue_id::text, ' ') FROM moved AS m
$$;

-- The recheck after a change of definitions. A transaction that ran at its commit may have used the old definitions and made
-- endpoints or messages that the change has not seen. The functions of definition_effects request it as endpoint 0. At most 500
-- endpoints at a time.
-- Gives: whether all is done; notices
CREATE FUNCTION dialoq.recheck_definitions(OUT is_done boolean, OUT notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = on SET enable_hashjoin = on
SET enable_mergejoin = on AS $$
DECLARE
    v_row record;
    v_lock record;
    v_broken record;
    v_count integer := 0;
BEGIN
    is_done := true;
    -- Rows of ready_group in a queue that the service has left.
    FOR v_row IN
        WITH wrong AS (
            SELECT r.ctid AS place, s.queue_id
            FROM dialoq.ready_group AS r
            CROSS JOIN LATERAL (
                SELECT e.service_id FROM dialoq.conversation_endpoint AS e
                WHERE e.conversation_group_id = r.conversation_group_id LIMIT 1) AS e
            JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE s.queue_id <> r.queue_id
            FOR UPDATE OF r SKIP LOCKED
        ), moved AS (
            UPDATE dialoq.ready_group AS r SET queue_id = w.queue_id FROM wrong AS w WHERE r.ctid = w.place
            RETURNING r.queue_id
        )
        SELECT DISTINCT m.queue_id FROM moved AS m
    LOOP
        notices := dialoq.add_notices(notices, 'q:' || v_row.queue_id::text);
    END LOOP;
    -- Endpoints of a dropped service, over a dropped contract, at a target that lost the contract.
    FOR v_row IN
        SELECT e.endpoint_id, p.endpoint_id AS peer_id, s.service_id IS NULL AS is_homeless,
            CASE WHEN s.service_id IS NULL THEN NULL WHEN c.is_dropped THEN -8487 ELSE -8468 END AS code
        FROM dialoq.conversation_endpoint AS e
        LEFT JOIN dialoq.service AS s ON s.service_id = e.service_id
        LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
        LEFT JOIN dialoq.service_contract_usage AS u
            ON u.service_id = e.service_id AND u.service_contract_id = e.service_contract_id
        LEFT JOIN dialoq.conversation_endpoint AS p
            ON p.conversation_id = e.conversation_id AND p.is_initiator = (NOT e.is_initiator)
        WHERE NOT e.is_system AND (s.service_id IS NULL OR (c.is_dropped OR NOT e.is_initiator AND u.service_id IS NULL)
            AND (SELECT dialoq.effective_state(e.state, f.message_type_id) FROM dialoq.first_system(e.endpoint_id) AS f)
                IN ('SO', 'CO', 'DI'))
        ORDER BY e.endpoint_id
        LIMIT 500
    LOOP
        v_count := v_count + 1;
        BEGIN
            IF v_row.is_homeless THEN
                SELECT * INTO v_lock FROM dialoq.lock_endpoint(v_row.endpoint_id, false);
                is_done := is_done AND v_lock.is_locked IS NOT NULL;
                CONTINUE WHEN v_lock.is_locked IS NOT TRUE;
                notices := dialoq.add_notices(notices, dialoq.raise_error(v_row.peer_id, -8470, 'the remote service was dropped'));
                PERFORM dialoq.erase(v_row.endpoint_id);
            ELSIF v_row.code = -8487 THEN
                notices := dialoq.add_notices(notices,
                    dialoq.raise_error(v_row.endpoint_id, -8487, 'the contract of the conversation was dropped'));
            ELSE
                notices := dialoq.add_notices(notices,
                    dialoq.raise_error(v_row.endpoint_id, -8468, 'the service was altered: it lost the contract'));
                notices := dialoq.add_notices(notices,
                    dialoq.raise_error(v_row.peer_id, -8469, 'the remote service was altered: it lost the contract'));
            END IF;
        EXCEPTION WHEN data_exception OR integrity_constraint_violation OR internal_error THEN
            SELECT b.is_done, b.notices INTO v_broken FROM dialoq.break_damaged(v_row.endpoint_id, SQLERRM) AS b;
            is_done := is_done AND v_broken.is_done IS NOT NULL;
            notices := dialoq.add_notices(notices, v_broken.notices);
        END;
    END LOOP;
    DELETE FROM dialoq.queue_message AS m
    WHERE NOT EXISTS (SELECT FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = m.endpoint_id);
    -- No RECEIVE comes to the row of an ended conversation in a queue that was dropped.
    DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (ARRAY(
        SELECT f.ctid FROM dialoq.ready_group AS f
        WHERE NOT EXISTS (SELECT FROM dialoq.service_queue AS q WHERE q.queue_id = f.queue_id)
            AND NOT EXISTS (SELECT FROM dialoq.conversation_endpoint AS e WHERE e.conversation_group_id = f.conversation_group_id)
        FOR UPDATE SKIP LOCKED));
    is_done := is_done AND v_count < 500 AND NOT EXISTS (
        SELECT FROM dialoq.ready_group AS r
        JOIN dialoq.conversation_endpoint AS e ON e.conversation_group_id = r.conversation_group_id
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE s.queue_id <> r.queue_id);
END
$$;
