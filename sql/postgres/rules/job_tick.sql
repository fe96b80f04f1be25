-- What tick does for work queues.
-- Takes, Gives, Errors, Locks: see each function

-- Scheduled jobs become ready, leases and the attempts of dead processes end, rates let jobs go, names whose windows are
-- over, old history and the rest of dropped queues go, jobs of queues that limit their keys are marked. It skips locked rows.
-- Takes: the time, how many jobs at most, the dropped queues and the rows of unmarked ones that this transaction saw before it had a number
-- Gives: how many jobs changed; notices; the time of the next event
CREATE OR REPLACE FUNCTION dialoq.tick_jobs(
    p_now timestamptz, p_top integer, p_dropped integer[], p_unmarked tid[], OUT did integer, OUT notices text, OUT due_at timestamptz)
LANGUAGE plpgsql SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
    v_done record;
    v_is_manual boolean;
    v_is_marking boolean;
    -- As in tick.
    v_left integer;
BEGIN
    BEGIN
        SELECT * INTO v_done FROM dialoq.run_due_jobs(p_now, p_top, false);
    EXCEPTION
        WHEN transaction_rollback OR insufficient_resources OR object_not_in_prerequisite_state
            OR operator_intervention OR system_error THEN
            RAISE;
        WHEN others THEN
            SELECT * INTO v_done FROM dialoq.run_due_jobs(p_now, p_top, true);
    END;
    did := v_done.did;
    notices := v_done.notices;
    v_left := greatest(p_top - did, (p_top + 3) / 4);
    BEGIN
        SELECT * INTO v_done FROM dialoq.fail_jobs_of_dead_processes(p_now, v_left, false);
    EXCEPTION
        WHEN transaction_rollback OR insufficient_resources OR object_not_in_prerequisite_state
            OR operator_intervention OR system_error THEN
            RAISE;
        WHEN others THEN
            SELECT * INTO v_done FROM dialoq.fail_jobs_of_dead_processes(p_now, v_left, true);
    END;
    did := did + v_done.did;
    notices := concat_ws(' ', notices, v_done.notices, dialoq.wake_rates(p_now, p_top));
    PERFORM dialoq.forget_unique_jobs(p_now, p_top);
    -- Here rather than in a take of plain SQL, whose transaction may stay open.
    PERFORM dialoq.reserve_tokens();
    PERFORM dialoq.clear_dropped_work_queues(p_dropped);
    v_is_marking := dialoq.mark_jobs(p_unmarked, 500);
    SELECT b.manual_now IS NOT NULL INTO v_is_manual FROM dialoq.broker AS b;
    due_at := least(
        (SELECT j.due_at FROM dialoq.job AS j WHERE j.due_at > p_now AND j.holder IS NULL ORDER BY j.due_at LIMIT 1),
        (SELECT r.wake_at FROM dialoq.work_rate AS r WHERE r.wake_at > p_now ORDER BY r.wake_at LIMIT 1),
        CASE WHEN dialoq.cut_job_history(p_now, 2000) OR v_is_marking THEN p_now END,
        -- Another session has locked the row.
        CASE WHEN EXISTS (SELECT FROM dialoq.job AS j WHERE j.due_at <= p_now AND j.holder IS NULL)
            THEN p_now + interval '1 second' END,
        -- Its host may die without a notice.
        CASE WHEN NOT v_is_manual AND EXISTS (SELECT FROM dialoq.job AS j WHERE j.process IS NOT NULL)
            THEN p_now + interval '5 seconds' END,
        CASE WHEN NOT v_is_manual AND (EXISTS (SELECT FROM dialoq.dropped_work_queue) OR EXISTS (SELECT FROM dialoq.unmarked_work_queue))
            THEN p_now + interval '1 second' END);
END $$;

-- Wakes the readers of queues whose rate lets one more job go, and forgets rates that hold nothing back.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.wake_rates(p_now timestamptz, p_top integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_rows tid[] := ARRAY(
        SELECT r.ctid FROM dialoq.work_rate AS r WHERE r.wake_at <= p_now ORDER BY r.wake_at LIMIT p_top FOR UPDATE SKIP LOCKED);
    v_notices text;
BEGIN
    IF cardinality(v_rows) > 0 THEN
        SELECT string_agg(DISTINCT 'q:' || r.queue_id::text, ' ') INTO v_notices FROM dialoq.work_rate AS r WHERE r.ctid = ANY (v_rows);
        DELETE FROM dialoq.work_rate AS r WHERE r.ctid = ANY (v_rows) AND r.next_take <= p_now;
        UPDATE dialoq.work_rate AS r SET wake_at = r.next_take WHERE r.ctid = ANY (v_rows);
    END IF;
    RETURN v_notices;
END $$;

-- Removes what transactions that pushed into a dropped queue have left, until the last of them has ended. A push gets its number
-- before it reads the queue, so one that has read it has a lower number than a transaction that saw the queue dropped before it had
-- one. The snapshot's xmax would not do: it may be the number of a transaction that runs.
-- Takes: the dropped queues that this transaction saw before it had a number
CREATE OR REPLACE FUNCTION dialoq.clear_dropped_work_queues(p_seen integer[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    d record;
BEGIN
    FOR d IN SELECT w.queue_id, w.after_xid FROM dialoq.dropped_work_queue AS w FOR UPDATE SKIP LOCKED LOOP
        IF d.after_xid IS NULL THEN
            UPDATE dialoq.dropped_work_queue AS w SET after_xid = pg_current_xact_id()
            WHERE w.queue_id = d.queue_id AND d.queue_id = ANY (p_seen);
        -- A higher number than the snapshot's is one of another server, of which this is a copy.
        ELSIF d.after_xid <= pg_snapshot_xmin(pg_current_snapshot()) OR d.after_xid > pg_snapshot_xmax(pg_current_snapshot()) THEN
            -- Only now: it reads every job of every queue, and sees all that those transactions have left.
            PERFORM dialoq.clear_work_queue(d.queue_id);
            -- A row that a take or a push has locked stays for the next time.
            DELETE FROM dialoq.dropped_work_queue AS w
            WHERE w.queue_id = d.queue_id AND NOT EXISTS (SELECT FROM dialoq.job AS j WHERE j.queue_id = d.queue_id)
                AND NOT EXISTS (SELECT FROM dialoq.work_limit AS l WHERE l.queue_id = d.queue_id)
                AND NOT EXISTS (SELECT FROM dialoq.unique_job AS u WHERE u.queue_id = d.queue_id);
        END IF;
    END LOOP;
END $$;

-- Marks the jobs of queues that have limited their keys since those were pushed: next_job finds marked jobs by their key. A push gets
-- its number before it reads the queue, see clear_dropped_work_queues. No take is under way meanwhile: it would pass over the rows
-- that are locked here. Reports wait 100 ms for a row, so the jobs are few, and only of one queue: the next one may have to wait for
-- its takes. The queues have their turns by chance.
-- Takes: the rows that this transaction saw before it had a number; how many jobs are read at most
-- Gives: whether more can be marked at once
CREATE OR REPLACE FUNCTION dialoq.mark_jobs(p_seen tid[], p_top integer) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    u record;
    v_read bigint[];
    v_unmarked bigint[];
    v_marked bigint;
    v_is_more boolean := false;
    v_timeout text := current_setting('lock_timeout');
BEGIN
    FOR u IN SELECT w.ctid, w.* FROM dialoq.unmarked_work_queue AS w ORDER BY random() FOR UPDATE SKIP LOCKED LOOP
        IF NOT EXISTS (SELECT FROM dialoq.work_queue AS q WHERE q.queue_id = u.queue_id AND dialoq.limits_keys(q)) THEN
            DELETE FROM dialoq.unmarked_work_queue AS w WHERE w.queue_id = u.queue_id;
            CONTINUE;
        ELSIF u.after_xid IS NULL THEN
            UPDATE dialoq.unmarked_work_queue AS w SET after_xid = pg_current_xact_id()
            WHERE w.queue_id = u.queue_id AND u.ctid = ANY (p_seen);
            CONTINUE;
        ELSIF u.after_xid > pg_snapshot_xmin(pg_current_snapshot()) AND u.after_xid <= pg_snapshot_xmax(pg_current_snapshot()) THEN
            CONTINUE;
        END IF;
        BEGIN
            -- Takes come one after the other, so a turn comes soon.
            PERFORM set_config('lock_timeout', '250ms', true);
            PERFORM FROM dialoq.work_limit AS l WHERE l.queue_id = u.queue_id FOR UPDATE;
            PERFORM set_config('lock_timeout', v_timeout, true);
        EXCEPTION WHEN lock_not_available THEN
            EXIT;
        END;
        v_read := ARRAY(SELECT j.job_id FROM dialoq.job AS j WHERE j.job_id > u.last_job_id ORDER BY j.job_id LIMIT p_top);
        v_unmarked := ARRAY(
            SELECT j.job_id FROM dialoq.job AS j
            WHERE j.job_id = ANY (v_read) AND j.queue_id = u.queue_id AND NOT j.has_key_limit);
        UPDATE dialoq.job AS j SET has_key_limit = true WHERE j.ctid = ANY (ARRAY(
            SELECT f.ctid FROM dialoq.job AS f WHERE f.job_id = ANY (v_unmarked) FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS v_marked = ROW_COUNT;
        u.has_passed_over := u.has_passed_over OR v_marked < cardinality(v_unmarked);
        IF cardinality(v_read) = p_top THEN
            v_is_more := true;
            UPDATE dialoq.unmarked_work_queue AS w SET last_job_id = v_read[p_top], has_passed_over = u.has_passed_over
            WHERE w.queue_id = u.queue_id;
        ELSE
            IF NOT u.has_passed_over THEN
                -- ALTER WORK QUEUE locks this row before that of the unmarked queue.
                UPDATE dialoq.work_queue AS q SET are_jobs_marked = true WHERE q.ctid = ANY (ARRAY(
                    SELECT f.ctid FROM dialoq.work_queue AS f
                    WHERE f.queue_id = u.queue_id AND dialoq.limits_keys(f) FOR UPDATE SKIP LOCKED));
                DELETE FROM dialoq.unmarked_work_queue AS w
                WHERE w.queue_id = u.queue_id AND EXISTS (
                    SELECT FROM dialoq.work_queue AS q WHERE q.queue_id = u.queue_id AND q.are_jobs_marked);
            END IF;
            UPDATE dialoq.unmarked_work_queue AS w SET last_job_id = 0, has_passed_over = false WHERE w.queue_id = u.queue_id;
        END IF;
        EXIT;
    END LOOP;
    RETURN v_is_more;
END $$;
