-- PUSHes of different callers into one work queue, without unique keys, in one transaction.
-- Takes: the queue; for each job its type, key, level, delay or time, body and writer, as push_job
-- Gives: for each item, from 0, its job_id; notices in the first row
-- Errors: 8459, 60002, 60005: then none is pushed
-- Locks: none
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.push_job_batch(
    p_queue text, p_job_types text[], p_job_keys text[], p_levels integer[], p_delays_ms bigint[], p_dues_us bigint[],
    p_bodies bytea[], p_pushed_by text[])
RETURNS TABLE (item integer, job_id bigint, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count integer := cardinality(p_job_types);
    q dialoq.work_queue;
    v_now timestamptz;
    v_dues timestamptz[];
    v_ids bigint[];
    v_notices text;
    v_xid xid8;
BEGIN
    IF v_count = 0 THEN
        RETURN;
    ELSIF (dialoq.is_column(p_job_types, v_count) AND dialoq.is_column(p_job_keys, v_count) AND dialoq.is_column(p_levels, v_count)
        AND dialoq.is_column(p_delays_ms, v_count) AND dialoq.is_column(p_dues_us, v_count) AND dialoq.is_column(p_bodies, v_count)
        AND dialoq.is_column(p_pushed_by, v_count)) IS NOT TRUE
    THEN
        PERFORM dialoq.refuse_columns('push_job_batch');
    END IF;
    PERFORM dialoq.check_isolation();
    -- Before the queue is read: tick finds by the numbers whether a push into a dropped queue still runs.
    v_xid := pg_current_xact_id();
    SELECT * INTO q FROM dialoq.work_queue AS w WHERE w.folded_name = lower(p_queue COLLATE "C");
    IF NOT FOUND THEN
        PERFORM dialoq.fail(60002, format('work queue ''%s'' was not found', p_queue));
    END IF;
    PERFORM dialoq.check_length('the type of a job', i.job_type, 128), dialoq.check_length('the name of a writer', i.pushed_by, 128),
        dialoq.check_length('the key of a job', i.job_key, 128), dialoq.check_range('the level of a job', i.level, 1, 10),
        dialoq.check_delay('the delay of a job in milliseconds', i.delay_ms, 0), dialoq.check_bytes('the body of a job', i.body)
    FROM unnest(p_job_types, p_job_keys, p_levels, p_delays_ms, p_bodies, p_pushed_by)
        AS i (job_type, job_key, level, delay_ms, body, pushed_by)
    WHERE octet_length(i.job_type) > 128 OR octet_length(i.pushed_by) > 128 OR octet_length(i.job_key) > 128 OR i.level IS NULL
        OR i.level NOT BETWEEN 1 AND 10 OR i.delay_ms IS NOT NULL OR octet_length(i.body) > 500000000;
    v_now := dialoq.current_time_utc();
    IF EXISTS (
        SELECT FROM unnest(p_delays_ms, p_dues_us) AS i (delay_ms, due_us) WHERE i.delay_ms IS NOT NULL OR i.due_us IS NOT NULL)
    THEN
        v_dues := ARRAY(
            SELECT dialoq.job_due(v_now, i.delay_ms, i.due_us)
            FROM unnest(p_delays_ms, p_dues_us) WITH ORDINALITY AS i (delay_ms, due_us, place) ORDER BY i.place);
        SELECT concat_ws(' ', CASE WHEN bool_or(d.due IS NULL) THEN 'q:' || q.queue_id::text END, dialoq.due_notice(min(d.due)))
        INTO v_notices FROM unnest(v_dues) AS d (due);
    ELSE
        v_notices := 'q:' || q.queue_id::text;
    END IF;
    v_notices := dialoq.publish_notices(v_notices);
    v_ids := ARRAY(SELECT nextval('dialoq.next_job_id') FROM generate_series(1, v_count));
    INSERT INTO dialoq.job (
        job_id, queue_id, rank_from_top, take_order, state, level, due_at, pushed_at, job_type, job_key, pushed_by,
        has_key_limit, body)
    SELECT i.job_id, q.queue_id, dialoq.job_rank(q.work_order, i.level), dialoq.job_place(q.work_order, i.job_id),
        CASE WHEN v_dues[i.place] IS NULL THEN 1 ELSE 0 END, i.level, v_dues[i.place], v_now, coalesce(i.job_type, ''), i.job_key,
        coalesce(i.pushed_by, ''), dialoq.limits_keys(q), CASE WHEN length(i.body) > 0 THEN i.body END
    FROM unnest(v_ids, p_job_types, p_job_keys, p_levels, p_pushed_by, p_bodies)
        WITH ORDINALITY AS i (job_id, job_type, job_key, level, pushed_by, body, place);
    RETURN QUERY
    SELECT i.place::integer - 1, i.job_id, CASE i.place WHEN 1 THEN v_notices END
    FROM unnest(v_ids) WITH ORDINALITY AS i (job_id, place);
END $$;
