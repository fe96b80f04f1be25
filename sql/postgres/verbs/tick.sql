-- Does what is due: timers, lifetimes, closed endpoints, what the transmission queue can send, rollbacks that nobody
-- counted, rows of processes that are gone, ids of units older than a week. What is locked is passed over. Many may call
-- it at once; each thing happens once.
-- Takes: how many things at most
-- Gives: did, how many it did; due_at, when something is due next (NULL: nothing); said; now_at, the server's clock
-- Errors: none
-- Locks: groups, without waiting
CREATE OR REPLACE FUNCTION dialoq.tick(p_top integer DEFAULT 500)
RETURNS TABLE (did integer, due_at timestamptz, said text, now_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dialoq, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := dialoq.current_time_utc();
    v_is_manual boolean;
    v_did integer := 0;
    v_row record;
    v_lock record;
    v_done record;
    v_said text;
    v_due timestamptz;
    v_is_blocked boolean := false;
    v_are_definitions_settled boolean;
BEGIN
    FOR v_row IN
        SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e
        WHERE e.due_at <= v_now ORDER BY e.due_at, e.endpoint_id
    LOOP
        EXIT WHEN v_did >= p_top;
        -- To take the lock is to take note of what is due.
        SELECT * INTO v_lock FROM dialoq.lock_endpoint(v_row.endpoint_id, false);
        IF v_lock.is_locked IS NULL THEN
            v_is_blocked := true;
        ELSE
            v_did := v_did + 1;
            v_said := dialoq.distinct_words(concat_ws(' ', v_said, v_lock.said));
        END IF;
    END LOOP;
    -- Transactions that received and are gone: nobody holds their groups.
    FOR v_row IN
        SELECT DISTINCT a.attempt_id, a.conversation_group_id FROM dialoq.receive_attempt AS a
        ORDER BY a.attempt_id, a.conversation_group_id
    LOOP
        EXIT WHEN v_did >= p_top;
        IF dialoq.try_lock_group(v_row.conversation_group_id) THEN
            v_said := dialoq.distinct_words(concat_ws(' ', v_said, dialoq.count_attempt(v_row.attempt_id)));
            v_did := v_did + 1;
        END IF;
    END LOOP;
    FOR v_row IN
        SELECT u.unsettled_id, u.endpoint_id FROM dialoq.unsettled AS u
        WHERE u.after_xid <= pg_snapshot_xmin(pg_current_snapshot())
            AND u.noted_at < clock_timestamp() - interval '0.5 seconds'
        ORDER BY u.unsettled_id
        LIMIT greatest(p_top - v_did, 0)
        FOR UPDATE SKIP LOCKED
    LOOP
        -- One look at all that changes of definitions concern serves all of them.
        IF v_row.endpoint_id <> 0 OR v_are_definitions_settled IS NULL THEN
            SELECT * INTO v_done FROM dialoq.settle(v_row.endpoint_id);
        ELSE
            v_done.is_settled := v_are_definitions_settled;
            v_done.said := NULL;
        END IF;
        IF v_row.endpoint_id = 0 THEN
            v_are_definitions_settled := v_done.is_settled;
        END IF;
        IF v_done.is_settled THEN
            DELETE FROM dialoq.unsettled AS u WHERE u.unsettled_id = v_row.unsettled_id;
            v_said := dialoq.distinct_words(concat_ws(' ', v_said, v_done.said));
            v_did := v_did + 1;
        END IF;
    END LOOP;
    UPDATE dialoq.unsettled AS u SET after_xid = pg_snapshot_xmax(pg_current_snapshot())
    WHERE u.unsettled_id IN (
        SELECT n.unsettled_id FROM dialoq.unsettled AS n
        WHERE n.after_xid IS NULL ORDER BY n.unsettled_id LIMIT 10000 FOR UPDATE SKIP LOCKED);
    DELETE FROM dialoq.done_unit AS d
    WHERE d.unit_id IN (
        SELECT o.unit_id FROM dialoq.done_unit AS o
        WHERE o.done_at < clock_timestamp() - interval '7 days' ORDER BY o.done_at LIMIT p_top FOR UPDATE SKIP LOCKED);
    PERFORM dialoq.forget_dead_processes();
    SELECT b.manual_now IS NOT NULL INTO v_is_manual FROM dialoq.broker AS b;
    SELECT min(e.due_at) INTO v_due FROM dialoq.conversation_endpoint AS e WHERE e.due_at > v_now;
    IF v_did >= p_top THEN
        v_due := v_now;
    ELSIF v_is_blocked OR NOT v_is_manual AND EXISTS (SELECT FROM dialoq.unsettled) THEN
        v_due := least(v_due, v_now + interval '1 second');
    ELSIF NOT v_is_manual AND EXISTS (SELECT FROM dialoq.receive_attempt) THEN
        -- Its host may die without a word.
        v_due := least(v_due, v_now + interval '5 seconds');
    END IF;
    RETURN QUERY SELECT v_did, v_due, dialoq.say(v_said), dialoq.current_time_utc();
END $$;

-- Each word once.
CREATE OR REPLACE FUNCTION dialoq.distinct_words(p_words text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(DISTINCT w.word, ' ') FROM unnest(string_to_array(p_words, ' ')) AS w (word) WHERE w.word <> ''
$$;

-- Removes what processes that are gone told about their readers.
CREATE OR REPLACE FUNCTION dialoq.forget_dead_processes() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_process uuid;
BEGIN
    FOR v_process IN
        SELECT m.process FROM dialoq.queue_monitor AS m UNION SELECT t.process FROM dialoq.activated_task AS t
    LOOP
        IF dialoq.is_process_gone(v_process) THEN
            DELETE FROM dialoq.queue_monitor AS m WHERE m.process = v_process;
            DELETE FROM dialoq.activated_task AS t WHERE t.process = v_process;
        END IF;
    END LOOP;
END $$;
