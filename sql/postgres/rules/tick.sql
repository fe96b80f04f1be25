-- The steps that tick and define_end do for conversations that are not their caller's. Many are done together, because a
-- subtransaction each would overflow the server's cache of them. If one fails, all are done once more, each by itself,
-- and the one that fails breaks its own conversation.
-- Takes, Gives, Errors, Locks: see each function

-- Runs the events that are due ('due'), counts rollbacks that are not counted yet ('count'), finds messages that wait for a recheck
-- ('find'), or rechecks endpoints ('recheck').
-- Takes: what, until when, how many at most, and whether each is done by itself
-- Gives: how many were done; notices; whether some wait for a transaction that holds their group
CREATE OR REPLACE FUNCTION dialoq.do_steps(
    p_step text, p_now timestamptz, p_top integer, p_is_alone boolean, OUT did integer, OUT notices text, OUT is_blocked boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_items refcursor;
    v_row record;
    v_done record;
    v_are_definitions_settled boolean;
    v_up_to bigint;
BEGIN
    did := 0;
    is_blocked := false;
    IF p_step = 'due' THEN
        OPEN v_items FOR
            SELECT e.endpoint_id, NULL::bigint AS id, NULL::uuid AS attempt_id FROM dialoq.conversation_endpoint AS e
            WHERE e.due_at <= p_now ORDER BY e.due_at, e.endpoint_id;
    ELSIF p_step = 'count' THEN
        -- Transactions that received and have ended.
        OPEN v_items FOR
            SELECT NULL::bigint AS endpoint_id, NULL::bigint AS id, a.attempt_id FROM dialoq.receive_attempt AS a
            WHERE dialoq.receiver_status(a.receiver_xid) IS DISTINCT FROM 'in progress'
            GROUP BY a.attempt_id ORDER BY min(a.began_at), a.attempt_id;
    ELSIF p_step = 'find' THEN
        OPEN v_items FOR SELECT h.endpoint_id, NULL::bigint AS id, NULL::uuid AS attempt_id FROM dialoq.find_hidden() AS h (endpoint_id);
    ELSE
        -- A request of a time that is still to come: the server's clock was set back.
        v_up_to := dialoq.recheck_up_to();
        -- Most requests are of conversations that have ended, with nothing left for their endpoint but messages that came too late. They
        -- are done in one statement: one by one, each took 150 us.
        IF NOT p_is_alone THEN
            WITH settled AS MATERIALIZED (
                SELECT u.ctid AS row, u.endpoint_id FROM dialoq.recheck_queue AS u
                WHERE (u.after_xid <= pg_snapshot_xmin(pg_current_snapshot()) OR u.after_xid > pg_snapshot_xmax(pg_current_snapshot()))
                    AND NOT u.noted_at BETWEEN clock_timestamp() - interval '0.5 seconds' AND clock_timestamp()
                    AND u.recheck_id BETWEEN dialoq.recheck_from() AND v_up_to AND u.endpoint_id > 0
                    AND NOT EXISTS (
                        SELECT FROM dialoq.conversation_endpoint AS e
                        WHERE e.endpoint_id = u.endpoint_id
                            AND (e.state <> 'CD'
                                OR EXISTS (SELECT FROM dialoq.queue_message AS m WHERE m.endpoint_id = e.endpoint_id OFFSET 0)
                                -- A row that a sender had locked when the conversation ended.
                                OR EXISTS (
                                    SELECT FROM dialoq.ready_group AS r
                                    WHERE r.conversation_group_id <= e.conversation_group_id AND (r.conversation_group_id, r.generation) >= (
                                        e.conversation_group_id, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1)) OFFSET 0)
                                OR EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = e.endpoint_id OFFSET 0))
                        OFFSET 0)
                ORDER BY u.recheck_id
                LIMIT greatest(p_top, 0)
                FOR UPDATE OF u SKIP LOCKED
            ), late AS MATERIALIZED (
                -- By their places, as in end_plain.
                SELECT m.ctid AS place FROM settled AS s
                CROSS JOIN LATERAL (
                    SELECT m.ctid FROM dialoq.queue_message AS m WHERE m.endpoint_id = s.endpoint_id
                    OFFSET 0
                ) AS m
            ), emptied AS (
                DELETE FROM dialoq.queue_message AS m USING late AS l WHERE m.ctid = l.place
            ), done AS (
                DELETE FROM dialoq.recheck_queue AS u USING settled AS s WHERE u.ctid = s.row
            )
            SELECT count(*) INTO did FROM settled;
        END IF;
        OPEN v_items FOR
            SELECT u.endpoint_id, u.recheck_id AS id, NULL::uuid AS attempt_id FROM dialoq.recheck_queue AS u
            -- In a restored copy the number may be one that this server has not given out yet: none of those transactions runs here.
            WHERE (u.after_xid <= pg_snapshot_xmin(pg_current_snapshot()) OR u.after_xid > pg_snapshot_xmax(pg_current_snapshot()))
                AND NOT u.noted_at BETWEEN clock_timestamp() - interval '0.5 seconds' AND clock_timestamp()
                AND u.recheck_id BETWEEN dialoq.recheck_from() AND v_up_to
            ORDER BY u.recheck_id
            LIMIT greatest(p_top, 0)
            FOR UPDATE SKIP LOCKED;
    END IF;
    LOOP
        EXIT WHEN did >= p_top;
        FETCH v_items INTO v_row;
        EXIT WHEN NOT FOUND;
        -- One recheck of the definitions serves all requests for it.
        IF p_step = 'find' AND v_row.endpoint_id = 0 THEN
            SELECT m.notices IS NOT NULL AS is_done, m.notices INTO v_done FROM dialoq.move_rows_left_behind() AS m (notices);
        ELSIF v_row.endpoint_id = 0 AND v_are_definitions_settled IS NOT NULL THEN
            SELECT v_are_definitions_settled AS is_done, NULL::text AS notices INTO v_done;
        ELSIF p_is_alone THEN
            SELECT * INTO v_done FROM dialoq.do_step_alone(p_step, v_row.endpoint_id, v_row.id, v_row.attempt_id);
        ELSE
            SELECT * INTO v_done FROM dialoq.do_step(p_step, v_row.endpoint_id, v_row.id, v_row.attempt_id);
        END IF;
        IF v_row.endpoint_id = 0 THEN
            v_are_definitions_settled := v_done.is_done;
        END IF;
        IF v_done.is_done IS TRUE THEN
            did := did + 1;
            notices := dialoq.distinct_notices(concat_ws(' ', notices, v_done.notices));
            IF p_step = 'recheck' THEN
                DELETE FROM dialoq.recheck_queue AS u WHERE u.recheck_id = v_row.id;
            END IF;
        ELSE
            is_blocked := is_blocked OR p_step = 'due';
        END IF;
    END LOOP;
    CLOSE v_items;
END $$;

-- One step.
-- Takes: the step; its endpoint, row of the transmission queue or attempt; of a delivery, the row delivered before (deliver)
-- Gives: whether it is done, NULL if another transaction holds the group; notices
CREATE OR REPLACE FUNCTION dialoq.do_step(
    p_step text, p_endpoint_id bigint, p_id bigint, p_attempt_id uuid, p_past bigint DEFAULT 0, OUT is_done boolean,
    OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_route record;
    v_more text;
BEGIN
    IF p_step = 'count' THEN
        -- Its own reader has not counted it.
        notices := dialoq.count_attempt(p_attempt_id, p_lost_since => clock_timestamp());
        is_done := CASE WHEN NOT EXISTS (SELECT FROM dialoq.receive_attempt AS a WHERE a.attempt_id = p_attempt_id) THEN true END;
        RETURN;
    ELSIF p_step = 'find' THEN
        SELECT s.is_done, s.notices INTO is_done, notices FROM dialoq.recheck(p_endpoint_id) AS s;
        RETURN;
    ELSIF p_step = 'recheck' THEN
        SELECT s.is_done, s.notices INTO is_done, notices FROM dialoq.recheck(p_endpoint_id) AS s;
        -- Its messages are announced to its group now, unless it has moved again since this was requested.
        UPDATE dialoq.conversation_endpoint AS e SET moved_recheck_id = NULL
        WHERE is_done AND e.endpoint_id = p_endpoint_id AND e.moved_recheck_id <= p_id;
        RETURN;
    END IF;
    -- lock_endpoint applies the events that are due.
    SELECT l.is_locked, l.notices INTO is_done, notices FROM dialoq.lock_endpoint(p_endpoint_id, false) AS l;
    IF is_done AND p_step = 'hold' THEN
        SELECT r.way, r.status INTO v_route FROM dialoq.route(p_endpoint_id) AS r;
        IF v_route.way = 'delayed' THEN
            PERFORM dialoq.hold_outbox(p_endpoint_id, v_route.status);
        END IF;
    ELSIF is_done AND p_step = 'deliver' THEN
        SELECT d.notices INTO v_more FROM dialoq.deliver(p_id, p_past) AS d;
        notices := concat_ws(' ', notices, v_more);
    END IF;
    is_done := CASE WHEN is_done IS NOT NULL THEN true END;
END $$;

-- The same by itself: if it fails, its conversation breaks. Errors without a fault in the row are not caught: a
-- deadlock, a shutdown of the server, a lack of memory or disk.
CREATE OR REPLACE FUNCTION dialoq.do_step_alone(
    p_step text, p_endpoint_id bigint, p_id bigint, p_attempt_id uuid, p_past bigint DEFAULT 0, OUT is_done boolean,
    OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_why text;
BEGIN
    SELECT s.is_done, s.notices INTO is_done, notices FROM dialoq.do_step(p_step, p_endpoint_id, p_id, p_attempt_id, p_past) AS s;
EXCEPTION
    WHEN transaction_rollback OR insufficient_resources OR object_not_in_prerequisite_state OR operator_intervention
        OR system_error THEN
        RAISE;
    WHEN others THEN
        GET STACKED DIAGNOSTICS v_why = MESSAGE_TEXT;
        IF p_step = 'count' THEN
            is_done := true;
            RAISE WARNING 'dialoq: a rollback could not be counted: %', v_why;
            DELETE FROM dialoq.receive_attempt AS a WHERE a.attempt_id = p_attempt_id;
        ELSE
            SELECT b.is_done, b.notices INTO is_done, notices FROM dialoq.break_damaged(p_endpoint_id, v_why) AS b;
        END IF;
END $$;

-- Breaks a conversation whose rows make a step fail: both sides get Error -60012. An endpoint that has ended goes. Rows
-- that do not even allow that are left where no step finds them.
-- Gives: whether it is broken or gone, NULL if another transaction holds the group; notices
CREATE OR REPLACE FUNCTION dialoq.break_damaged(p_endpoint_id bigint, p_why text, OUT is_done boolean, OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    e record;
    v_peer bigint;
    v_now timestamptz := dialoq.current_time_utc();
    v_text CONSTANT text := 'the rows of the conversation are damaged: ' || left(p_why, 2000);
BEGIN
    SELECT c.conversation_handle, c.conversation_id, c.conversation_group_id, c.is_initiator, c.state INTO e
    FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id;
    IF FOUND AND NOT dialoq.try_lock_group(e.conversation_group_id) THEN
        RETURN;
    END IF;
    is_done := true;
    IF e.conversation_group_id IS NULL THEN
        RETURN;
    END IF;
    RAISE WARNING 'dialoq: conversation % is broken, because its rows are damaged: %', e.conversation_handle, p_why;
    SELECT p.endpoint_id INTO v_peer
    FROM dialoq.conversation_endpoint AS p
    WHERE p.conversation_id = e.conversation_id AND p.is_initiator = NOT e.is_initiator;
    BEGIN
        notices := dialoq.raise_error(v_peer, -60012, v_text);
    EXCEPTION WHEN data_exception OR integrity_constraint_violation OR internal_error THEN
        RAISE WARNING 'dialoq: the peer of conversation % got no Error, because its rows are damaged too', e.conversation_handle;
    END;
    BEGIN
        DELETE FROM dialoq.transmission AS t WHERE t.endpoint_id = p_endpoint_id;
        UPDATE dialoq.conversation_endpoint AS c
        SET state = CASE WHEN c.state IN ('SO', 'SI', 'CO', 'DI', 'DO', 'ER', 'CD') THEN c.state ELSE 'CO' END,
            priority = least(greatest(c.priority, 1), 10), dialog_timer = NULL, due_at = NULL,
            lifetime = CASE WHEN isfinite(c.lifetime) THEN c.lifetime ELSE v_now + interval '1 day' END
        WHERE c.endpoint_id = p_endpoint_id;
        PERFORM dialoq.touch_counter(p_endpoint_id);
        IF e.state IN ('DO', 'CD') THEN
            PERFORM dialoq.erase(p_endpoint_id);
        ELSE
            notices := concat_ws(' ', notices, dialoq.break_conversation(p_endpoint_id, -60012, v_text, v_now));
        END IF;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation OR internal_error THEN
        UPDATE dialoq.conversation_endpoint AS c SET state = 'ER', dialog_timer = NULL, due_at = NULL
        WHERE c.endpoint_id = p_endpoint_id;
        DELETE FROM dialoq.transmission AS t WHERE t.endpoint_id = p_endpoint_id;
    END;
END $$;

-- Deletes the reader rows of processes that have ended. It skips rows that another session has locked, because every
-- session with the role dialoq_user may write them. Each process that has ended costs a lock to the end of the transaction: after rows
-- of 30,000 invented processes every tick failed, because the server was out of locks. So one call looks at 200 processes, in an order
-- that no row can hold up.
CREATE OR REPLACE FUNCTION dialoq.forget_dead_processes() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_process uuid;
BEGIN
    FOR v_process IN
        SELECT p.process
        FROM (SELECT m.process FROM dialoq.queue_monitor AS m UNION SELECT t.process FROM dialoq.activated_task AS t) AS p
        ORDER BY random() LIMIT 200
    LOOP
        IF dialoq.is_process_gone(v_process) THEN
            DELETE FROM dialoq.queue_monitor AS m WHERE m.ctid = ANY (ARRAY(
                SELECT n.ctid FROM dialoq.queue_monitor AS n WHERE n.process = v_process FOR UPDATE SKIP LOCKED));
            DELETE FROM dialoq.activated_task AS t WHERE t.ctid = ANY (ARRAY(
                SELECT n.ctid FROM dialoq.activated_task AS n WHERE n.process = v_process FOR UPDATE SKIP LOCKED));
        END IF;
    END LOOP;
END $$;

-- Sequences that lie behind their rows, because these were copied. Logical replication copies no value of a sequence, nor do tools that
-- copy tables: the next message had a place before those that waited and was received first, and a new conversation or job had the
-- number of another one. tick raises them, so each opening for changes does.
CREATE FUNCTION dialoq.raise_sequences()
RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Others may take numbers between the reading of a sequence and its raising.
    c_room constant bigint := 1000;
    v_sequence record;
    v_raised integer := 0;
BEGIN
    -- In a copy a sequence has given no number yet. The rows are asked only then: under an old snapshot the first may stand behind
    -- millions of dead ones. By CASE, because the planner asks what depends on no row before it reads the sequence.
    IF NOT EXISTS (
        SELECT FROM dialoq.conversation_endpoint_endpoint_id_seq AS s
        WHERE CASE WHEN NOT s.is_called THEN EXISTS (SELECT FROM dialoq.conversation_endpoint) END
        UNION ALL
        SELECT FROM dialoq.queue_message_queuing_order_seq AS s
        WHERE CASE WHEN NOT s.is_called THEN EXISTS (SELECT FROM dialoq.queue_message)
            OR EXISTS (SELECT FROM dialoq.retained_message) OR EXISTS (SELECT FROM dialoq.dead_letter) END
        UNION ALL
        SELECT FROM dialoq.transmission_transmission_id_seq AS s
        WHERE CASE WHEN NOT s.is_called THEN EXISTS (SELECT FROM dialoq.transmission) END
        UNION ALL
        SELECT FROM dialoq.unsettled_unsettled_id_seq AS s
        WHERE CASE WHEN NOT s.is_called THEN EXISTS (SELECT FROM dialoq.recheck_queue)
            OR EXISTS (SELECT FROM dialoq.ready_generation AS g WHERE g.recheck_from > 1) END
        UNION ALL
        SELECT FROM dialoq.next_job_id AS s
        WHERE CASE WHEN NOT s.is_called THEN EXISTS (SELECT FROM dialoq.job)
            OR EXISTS (SELECT FROM dialoq.job_history) OR EXISTS (SELECT FROM dialoq.unique_job) END
        UNION ALL
        SELECT FROM dialoq.job_history_finish_number_seq AS s
        WHERE CASE WHEN NOT s.is_called THEN EXISTS (SELECT FROM dialoq.job_history) END)
    THEN
        RETURN 0;
    END IF;
    -- One session at a time; another one does it.
    BEGIN
        LOCK TABLE dialoq.installed IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
    EXCEPTION WHEN lock_not_available THEN
        RETURN 0;
    END;
    FOR v_sequence IN
        SELECT h.name::regclass AS name, h.highest
        FROM (VALUES
            ('dialoq.conversation_endpoint_endpoint_id_seq', (SELECT max(e.endpoint_id) FROM dialoq.conversation_endpoint AS e)),
            ('dialoq.queue_message_queuing_order_seq', greatest(
                (SELECT max(m.queuing_order) FROM dialoq.queue_message AS m),
                (SELECT max(r.queuing_order) FROM dialoq.retained_message AS r),
                (SELECT max(d.queuing_order) FROM dialoq.dead_letter AS d))),
            ('dialoq.unsettled_unsettled_id_seq', greatest(
                (SELECT max(q.recheck_id) FROM dialoq.recheck_queue AS q),
                -- A request below them is not looked at.
                (SELECT greatest(max(g.recheck_to), max(g.recheck_from) - 1) FROM dialoq.ready_generation AS g),
                (SELECT max(e.moved_recheck_id) FROM dialoq.conversation_endpoint AS e))),
            ('dialoq.transmission_transmission_id_seq', (SELECT max(t.transmission_id) FROM dialoq.transmission AS t)),
            ('dialoq.next_job_id', greatest(
                (SELECT max(j.job_id) FROM dialoq.job AS j),
                (SELECT max(f.job_id) FROM dialoq.job_history AS f),
                (SELECT max(u.job_id) FROM dialoq.unique_job AS u))),
            -- Those of finished jobs are below job_token_mark, above which the next take of a copy begins.
            ('dialoq.next_job_token', (SELECT max(j.token) FROM dialoq.job AS j)),
            ('dialoq.job_history_finish_number_seq', greatest(
                (SELECT max(f.finish_number) FROM dialoq.job_history AS f),
                (SELECT max(c.finish_number) FROM dialoq.job_history_cut AS c)))
        ) AS h (name, highest)
    LOOP
        IF coalesce(pg_sequence_last_value(v_sequence.name), 0) < v_sequence.highest THEN
            PERFORM setval(v_sequence.name, v_sequence.highest + c_room);
            v_raised := v_raised + 1;
        END IF;
    END LOOP;
    IF v_raised > 0 THEN
        RAISE WARNING 'dialoq: % sequences lay behind their rows, as in a copy by logical replication, and were raised', v_raised;
    END IF;
    RETURN v_raised;
END $$;
