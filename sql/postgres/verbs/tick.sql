-- The background step. Runs the events that are due: timers, lifetimes, closed endpoints, deliveries from the transmission queue, rollbacks that are not
-- counted yet, rows of ended processes, ids of units older than a week; scheduled jobs, leases, limits and history of work
-- queues. It skips locked rows. Several sessions may call it at the same time; each step happens once.
-- Takes: how many events at most (NULL: 500), up to 10000. A fourth of that is kept for each kind, so with several kinds it may be more
-- Gives: did, how many it ran; due_at, the time of the next event (NULL: none); notices; now_at, the server's clock;
--     has_due_schedules, whether a client has to fire a work schedule (fire_schedule)
-- Errors: 60005 in a transaction that has written something; 60026
-- Locks: groups, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.tick(p_top integer DEFAULT 500)
RETURNS TABLE (did integer, due_at timestamptz, notices text, now_at timestamptz, has_due_schedules boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_top integer := least(greatest(coalesce(p_top, 500), 0), 10000);
    v_now timestamptz := dialoq.current_time_utc();
    v_is_manual boolean;
    -- Thousands of timers that were due at once left nothing to leases, delayed jobs and the jobs of dead processes, until the last timer was
    -- done: for half a minute with 50,000.
    v_least integer := (v_top + 3) / 4;
    v_did integer := 0;
    v_step text;
    v_done record;
    v_notices text;
    v_due timestamptz;
    v_is_blocked boolean := false;
    v_jobs record;
    v_is_turning boolean;
    v_is_all boolean;
    v_requests bigint[];
    v_dropped integer[];
    v_unmarked tid[];
BEGIN
    PERFORM dialoq.check_isolation();
    -- Its work is visible to others only at the end of the transaction.
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        PERFORM dialoq.fail(60005, 'tick was called in a transaction that has written something, and would keep what is due from '
            'all others until its end; call it outside');
    END IF;
    IF dialoq.raise_sequences() > 0 THEN
        -- What follows is for a transaction that has no number yet.
        RETURN QUERY SELECT 1, v_now, NULL::text, dialoq.current_time_utc(), false;
        RETURN;
    END IF;
    -- Requests that are seen here: every transaction that may have written before them has a lower number than this one gets now. The
    -- snapshot's xmax would not do: it may be the number of a transaction that runs.
    v_requests := ARRAY(
        SELECT n.recheck_id
        FROM (SELECT dialoq.recheck_up_to() AS id OFFSET 0) AS up_to
        CROSS JOIN LATERAL (
            (SELECT f.recheck_id, f.after_xid FROM dialoq.recheck_queue AS f
            WHERE f.recheck_id BETWEEN dialoq.recheck_from() AND up_to.id)
            UNION ALL
            -- New ones come behind very many that wait.
            (SELECT l.recheck_id, l.after_xid FROM dialoq.recheck_queue AS l
            WHERE l.recheck_id > up_to.id ORDER BY l.recheck_id DESC LIMIT 10000)
        ) AS n
        WHERE n.after_xid IS NULL
        LIMIT 10000);
    -- Likewise.
    v_dropped := ARRAY(SELECT w.queue_id FROM dialoq.dropped_work_queue AS w WHERE w.after_xid IS NULL);
    -- The row versions, because ALTER WORK QUEUE may ask again meanwhile.
    v_unmarked := ARRAY(SELECT w.ctid FROM dialoq.unmarked_work_queue AS w WHERE w.after_xid IS NULL);
    SELECT t.is_turning, t.is_all INTO v_is_turning, v_is_all FROM dialoq.turn_generation(2000) AS t;
    PERFORM dialoq.watch_dead_rows();
    SELECT b.manual_now IS NOT NULL INTO v_is_manual FROM dialoq.broker AS b;
    IF v_is_turning AND v_is_all AND NOT v_is_manual THEN
        RETURN QUERY SELECT 0, v_now + interval '50 ms', NULL::text, dialoq.current_time_utc(), false;
        RETURN;
    END IF;
    FOREACH v_step IN ARRAY ARRAY['due', 'count', 'find', 'recheck'] LOOP
        BEGIN
            SELECT * INTO v_done FROM dialoq.do_steps(v_step, v_now, greatest(v_top - v_did, v_least), false);
        EXCEPTION
            WHEN transaction_rollback OR insufficient_resources OR object_not_in_prerequisite_state
                OR operator_intervention OR system_error THEN
                RAISE;
            WHEN others THEN
                SELECT * INTO v_done FROM dialoq.do_steps(v_step, v_now, greatest(v_top - v_did, v_least), true);
        END;
        v_did := v_did + v_done.did;
        v_notices := dialoq.distinct_notices(concat_ws(' ', v_notices, v_done.notices));
        v_is_blocked := v_is_blocked OR v_done.is_blocked;
    END LOOP;
    v_notices := concat_ws(' ', v_notices, dialoq.end_holds(v_now, false));
    SELECT * INTO v_jobs FROM dialoq.tick_jobs(v_now, greatest(v_top - v_did, v_least), v_dropped, v_unmarked);
    v_did := v_did + v_jobs.did;
    v_notices := dialoq.distinct_notices(concat_ws(' ', v_notices, v_jobs.notices));
    IF cardinality(v_requests) > 0 THEN
        -- By place: where ANALYZE saw few rows, the planner compared each with each, 3,600 for 6 s.
        UPDATE dialoq.recheck_queue AS u SET after_xid = pg_current_xact_id()
        WHERE u.ctid = ANY (ARRAY(
            SELECT n.ctid FROM dialoq.recheck_queue AS n
            WHERE n.recheck_id = ANY (v_requests) AND n.after_xid IS NULL FOR UPDATE SKIP LOCKED));
    END IF;
    DELETE FROM dialoq.done_unit AS d
    WHERE d.ctid = ANY (ARRAY(
        SELECT o.ctid FROM dialoq.done_unit AS o
        WHERE o.done_at < clock_timestamp() - interval '7 days' ORDER BY o.done_at LIMIT v_top FOR UPDATE SKIP LOCKED));
    -- These rows only show readers. If they cannot be deleted now, all that is done above stays done.
    BEGIN
        PERFORM dialoq.forget_dead_processes();
    EXCEPTION
        WHEN transaction_rollback OR object_not_in_prerequisite_state OR operator_intervention OR system_error THEN
            RAISE;
        WHEN others THEN
            RAISE WARNING 'dialoq: the rows of ended processes stay until a later tick: %', SQLERRM;
    END;
    SELECT min(e.due_at) INTO v_due FROM dialoq.conversation_endpoint AS e WHERE e.due_at > v_now;
    IF v_did >= v_top THEN
        v_due := v_now;
    ELSIF v_is_blocked OR NOT v_is_manual AND EXISTS (
        SELECT FROM dialoq.recheck_queue AS u WHERE u.recheck_id >= dialoq.recheck_from())
    THEN
        -- Not before the others have had their turn, however long this one took.
        v_due := least(v_due, dialoq.current_time_utc() + interval '1 second');
    ELSIF NOT v_is_manual AND EXISTS (SELECT FROM dialoq.receive_attempt) THEN
        -- Its host may die without a notice.
        v_due := least(v_due, v_now + interval '5 seconds');
    END IF;
    IF v_is_turning AND NOT v_is_manual THEN
        v_due := least(v_due, v_now + interval '50 ms');
    END IF;
    v_due := least(v_due, v_jobs.due_at,
        (SELECT s.next_at FROM dialoq.work_schedule AS s WHERE s.next_at > v_now ORDER BY s.next_at LIMIT 1),
        -- The row of a hold that is over may have been locked.
        (SELECT greatest(min(q.receives_held_until), v_now + interval '50 ms') FROM dialoq.service_queue AS q
            HAVING min(q.receives_held_until) IS NOT NULL));
    RETURN QUERY SELECT v_did, v_due, dialoq.publish_notices(v_notices), dialoq.current_time_utc(),
        EXISTS (SELECT FROM dialoq.work_schedule AS s WHERE s.next_at <= v_now);
END $$;
