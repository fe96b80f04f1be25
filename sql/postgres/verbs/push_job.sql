-- PUSH: puts a job into a work queue. It takes effect at the commit.
-- Takes: the queue; the type; the key, whose jobs keep their order where the queue limits jobs by key; the level; when it is
--     due: after a delay, or at a time in microseconds since 1970 (both NULL: now); the name by which it is the only job of
--     its queue, and for how long in milliseconds (NULL: until it is finished); the body; the writer's name
-- Gives: job_id, NULL if the job of the unique key is finished; is_new, whether this push made it; notices
-- Errors: 8459, 60002, 60005, 60043
-- Locks: the unique key, waiting 100 ms at most
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.push_job(
    p_queue text, p_job_type text DEFAULT '', p_job_key text DEFAULT NULL, p_level integer DEFAULT 5,
    p_delay_ms bigint DEFAULT NULL, p_due_us bigint DEFAULT NULL, p_unique_key text DEFAULT NULL,
    p_unique_ms bigint DEFAULT NULL, p_body bytea DEFAULT NULL, p_pushed_by text DEFAULT NULL)
RETURNS TABLE (job_id bigint, is_new boolean, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    q dialoq.work_queue;
    v_now timestamptz;
    v_due timestamptz;
    v_named record;
    v_id bigint;
    v_xid xid8;
BEGIN
    IF NOT dialoq.is_read_committed() THEN
        PERFORM dialoq.check_isolation();
    END IF;
    -- Before the queue is read: tick finds by the numbers whether a push into a dropped queue still runs.
    v_xid := pg_current_xact_id();
    -- Nearly every job is one of these, and each further statement costs the server 10 to 20 us.
    IF p_delay_ms IS NULL AND p_due_us IS NULL AND p_unique_key IS NULL AND p_level BETWEEN 1 AND 10
        AND (octet_length(p_job_type) > 128 OR octet_length(p_pushed_by) > 128 OR octet_length(p_job_key) > 128
            OR octet_length(p_body) > 500000000) IS NOT TRUE
    THEN
        v_id := nextval('dialoq.next_job_id');
        INSERT INTO dialoq.job AS j (
            job_id, queue_id, rank_from_top, take_order, state, level, pushed_at, job_type, job_key, pushed_by, has_key_limit,
            body)
        SELECT v_id, w.queue_id, dialoq.job_rank(w.work_order, p_level), dialoq.job_place(w.work_order, v_id), 1, p_level,
            coalesce(b.manual_now, clock_timestamp()), coalesce(p_job_type, ''), p_job_key, coalesce(p_pushed_by, ''),
            dialoq.limits_keys(w), CASE WHEN length(p_body) > 0 THEN p_body END
        FROM dialoq.work_queue AS w, dialoq.broker AS b
        WHERE w.folded_name = lower(p_queue COLLATE "C")
        RETURNING j.job_id, true, 'q:' || j.queue_id::text INTO job_id, is_new, notices;
        IF FOUND THEN
            IF NOT dialoq.is_client_call() THEN
                PERFORM dialoq.publish_notices(notices);
            END IF;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    SELECT * INTO q FROM dialoq.work_queue AS w WHERE w.folded_name = lower(p_queue COLLATE "C");
    IF NOT FOUND THEN
        PERFORM dialoq.fail(60002, format('work queue ''%s'' was not found', p_queue));
    END IF;
    -- Each check costs the server a statement.
    IF octet_length(p_job_type) > 128 OR octet_length(p_pushed_by) > 128 OR octet_length(p_job_key) > 128
        OR (p_level BETWEEN 1 AND 10) IS NOT TRUE OR p_delay_ms IS NOT NULL OR p_unique_key IS NOT NULL OR octet_length(p_body) > 500000000
    THEN
        PERFORM dialoq.check_length('the type of a job', p_job_type, 128);
        PERFORM dialoq.check_length('the name of a writer', p_pushed_by, 128);
        PERFORM dialoq.check_length('the key of a job', p_job_key, 128);
        PERFORM dialoq.check_range('the level of a job', p_level, 1, 10);
        PERFORM dialoq.check_delay('the delay of a job in milliseconds', p_delay_ms, 0);
        IF p_unique_key IS NOT NULL THEN
            PERFORM dialoq.check_length('the unique key of a job', p_unique_key, 128);
            PERFORM dialoq.check_delay('the window of a unique key in milliseconds', p_unique_ms, 1);
        END IF;
        PERFORM dialoq.check_bytes('the body of a job', p_body);
    END IF;
    v_now := dialoq.current_time_utc();
    v_id := nextval('dialoq.next_job_id');
    IF p_unique_key IS NOT NULL THEN
        SELECT * INTO v_named
        FROM dialoq.take_name(q, p_unique_key, v_id, v_now + p_unique_ms * interval '1 millisecond', v_now);
        IF v_named.has_job THEN
            RETURN QUERY SELECT v_named.job_id, false, NULL::text;
            RETURN;
        END IF;
    END IF;
    -- DIFFERENCE(time-in-a-transaction): the time of this call.
    IF p_delay_ms IS NOT NULL OR p_due_us IS NOT NULL THEN
        v_due := dialoq.job_due(v_now, p_delay_ms, p_due_us);
    END IF;
    INSERT INTO dialoq.job (
        job_id, queue_id, rank_from_top, take_order, state, level, due_at, pushed_at, job_type, job_key, unique_key, pushed_by,
        has_key_limit, body)
    VALUES (
        v_id, q.queue_id, dialoq.job_rank(q.work_order, p_level), dialoq.job_place(q.work_order, v_id),
        CASE WHEN v_due IS NULL THEN 1 ELSE 0 END, p_level, v_due, v_now, coalesce(p_job_type, ''), p_job_key, p_unique_key,
        coalesce(p_pushed_by, ''), dialoq.limits_keys(q), CASE WHEN length(p_body) > 0 THEN p_body END);
    job_id := v_id;
    is_new := true;
    notices := dialoq.publish_notices(CASE WHEN v_due IS NULL THEN 'q:' || q.queue_id::text ELSE dialoq.due_notice(v_due) END);
    RETURN NEXT;
END $$;
