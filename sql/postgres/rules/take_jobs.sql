-- TAKE: jobs that are ready, to a reader.
-- Takes, Gives, Errors, Locks: see each function

-- Takes jobs. The jobs of a queue without limits are found in one walk along the index of ready jobs.
-- Takes: as take_jobs; the process and the transaction that hold the jobs (NULL: a lease, or none)
-- Gives: the jobs in the order of their queue, notices in the first; one row with notices only, for a client of Dialoq, if
--     there are notices and no job
-- Errors: 60002, 60005
-- Locks: the jobs, passing over those that others hold; in a queue with limits, lock_limits
CREATE OR REPLACE FUNCTION dialoq.take_ready_jobs(
    p_queue text, p_job_count bigint, p_job_type text, p_lowest integer, p_highest integer, p_oldest boolean,
    p_has_lease boolean, p_lease_ms bigint, p_taken_by text, p_process uuid, p_holder uuid)
RETURNS TABLE (
    job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    q dialoq.work_queue;
    v_now timestamptz;
    v_until timestamptz;
    v_from integer := 0;
    v_to integer := 0;
    v_rows tid[];
    v_ids bigint[];
    v_finished bigint[];
    v_notices text;
BEGIN
    PERFORM dialoq.check_isolation();
    SELECT * INTO q FROM dialoq.work_queue AS w WHERE w.folded_name = lower(p_queue COLLATE "C");
    IF NOT FOUND THEN
        PERFORM dialoq.fail(60002, format('work queue ''%s'' was not found', p_queue));
    END IF;
    PERFORM dialoq.check_take(q, p_job_count, p_job_type, p_lowest, p_highest, p_oldest, p_has_lease, p_lease_ms, p_taken_by);
    IF NOT q.is_enabled THEN
        RETURN;
    END IF;
    v_now := dialoq.current_time_utc();
    IF p_has_lease THEN
        v_until := v_now + coalesce(p_lease_ms, q.lease_ms) * interval '1 millisecond';
    END IF;
    IF q.work_order = 'PRIORITY' THEN
        v_from := 10 - coalesce(p_highest, 10);
        v_to := 10 - coalesce(p_lowest, 1);
    END IF;
    IF dialoq.is_limited(q) OR p_oldest IS TRUE THEN
        SELECT t.job_ids, t.notices INTO v_ids, v_notices
        FROM dialoq.take_one_by_one(q, p_job_count, p_job_type, v_from, v_to, p_oldest IS TRUE, v_now) AS t;
        v_rows := ARRAY(SELECT j.ctid FROM dialoq.job AS j WHERE j.job_id = ANY (v_ids));
    ELSIF p_job_type IS NULL THEN
        v_rows := ARRAY(
            SELECT j.ctid FROM dialoq.job AS j
            WHERE j.queue_id = q.queue_id AND j.state = 1 AND j.rank_from_top BETWEEN v_from AND v_to
            ORDER BY j.rank_from_top, j.take_order LIMIT p_job_count FOR UPDATE SKIP LOCKED);
    ELSE
        v_rows := ARRAY(
            SELECT j.ctid FROM dialoq.job AS j
            WHERE j.queue_id = q.queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top BETWEEN v_from AND v_to
            ORDER BY j.rank_from_top, j.take_order LIMIT p_job_count FOR UPDATE SKIP LOCKED);
    END IF;
    IF cardinality(v_rows) = 0 THEN
        IF v_notices IS NOT NULL AND dialoq.publish_notices(v_notices) IS NOT NULL AND current_setting('dialoq.client', true) = '1' THEN
            notices := v_notices;
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;
    -- Every process looks for what is due once a minute.
    IF v_until < v_now + interval '1 minute' THEN
        v_notices := concat_ws(' ', v_notices, dialoq.due_notice(v_until));
    END IF;
    IF p_has_lease IS NOT TRUE AND p_holder IS NULL THEN
        v_finished := ARRAY(SELECT j.job_id FROM dialoq.job AS j WHERE j.ctid = ANY (v_rows));
        v_notices := concat_ws(' ', v_notices, CASE WHEN dialoq.is_limited(q) THEN 'q:' || q.queue_id END);
    END IF;
    v_notices := dialoq.publish_notices(v_notices);
    RETURN QUERY
    WITH taken AS (
        UPDATE dialoq.job AS j
        SET state = 2, attempts = j.attempts + 1,
            token = nextval('dialoq.next_job_token'), due_at = v_until, taken_at = v_now,
            taken_by = coalesce(p_taken_by, ''), progress = NULL, process = p_process, holder = p_holder
        WHERE j.ctid = ANY (v_rows)
        RETURNING j.job_id, j.token, j.job_type, j.job_key, j.level, j.attempts, j.pushed_at, j.pushed_by, j.last_error, j.body,
            j.rank_from_top, j.take_order
    )
    SELECT t.job_id, t.token, q.name, t.job_type, t.job_key, t.level::integer, t.attempts, t.pushed_at, t.pushed_by, v_until,
        t.last_error, t.body,
        CASE WHEN row_number() OVER (ORDER BY array_position(v_ids, t.job_id), t.rank_from_top, t.take_order) = 1 THEN v_notices END
    FROM taken AS t
    ORDER BY array_position(v_ids, t.job_id), t.rank_from_top, t.take_order;
    -- Without a lease and a holder the taking itself completes the jobs.
    IF v_finished IS NOT NULL THEN
        PERFORM dialoq.finish_jobs(v_finished, 4, NULL, v_now);
    END IF;
END $$;

-- Takes the jobs of a queue with limits, or the oldest ones: after each job the next one is chosen anew. The jobs are marked
-- as taken, so that the limits count them; the caller writes the rest of their rows.
-- Gives: the jobs in the order of their queue; notices
CREATE OR REPLACE FUNCTION dialoq.take_one_by_one(
    q dialoq.work_queue, p_job_count bigint, p_job_type text, p_from integer, p_to integer, p_oldest boolean, p_now timestamptz,
    OUT job_ids bigint[], OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_is_limited boolean := dialoq.is_limited(q);
    v_blocked text[] := '{}';
    v_is_keyless_blocked boolean := false;
    v_id bigint;
    v_key text;
BEGIN
    job_ids := '{}';
    IF v_is_limited AND NOT dialoq.lock_limits(q.queue_id) THEN
        RETURN;
    END IF;
    WHILE cardinality(job_ids) < p_job_count LOOP
        IF v_is_limited THEN
            EXIT WHEN dialoq.room_of_queue(q, p_now) <= 0;
            SELECT b.blocked, b.is_keyless_blocked INTO v_blocked, v_is_keyless_blocked FROM dialoq.blocked_keys(q, p_now) AS b;
        END IF;
        v_id := dialoq.next_job(q.queue_id, p_job_type, p_from, p_to, p_oldest, v_blocked, v_is_keyless_blocked);
        EXIT WHEN v_id IS NULL;
        UPDATE dialoq.job AS j SET state = 2 WHERE j.job_id = v_id RETURNING j.job_key INTO v_key;
        job_ids := job_ids || v_id;
        IF q.rate_jobs > 0 THEN
            notices := concat_ws(' ', notices, dialoq.count_rate(q.queue_id, false, '', q.rate_jobs, q.rate_ms, p_now));
        END IF;
        IF q.key_rate_jobs > 0 AND v_key IS NOT NULL THEN
            notices := dialoq.distinct_notices(concat_ws(' ', notices,
                dialoq.count_rate(q.queue_id, true, v_key, q.key_rate_jobs, q.rate_ms, p_now)));
        END IF;
    END LOOP;
END $$;
