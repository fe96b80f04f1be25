-- Writes a work queue, new or not, or removes one with its jobs and its history.
-- Takes: the columns of work_queue; or the queue_id
-- Gives: put_work_queue: nothing; delete_work_queue: notices
-- Errors: 60005; delete_work_queue: 3716 if a transaction holds a job of the queue that is removed, or if a work schedule
--     pushes into it
-- Locks: the row, the jobs
-- Called by: dialoq_admin (put_work_queue, delete_work_queue)
CREATE FUNCTION dialoq.put_work_queue(
    p_queue_id integer, p_name text, p_folded_name text, p_is_enabled boolean, p_work_order text, p_has_history boolean,
    p_take_by text, p_max_attempts bigint, p_retry_delay_ms bigint, p_retry_factor_percent bigint, p_max_retry_delay_ms bigint,
    p_retry_jitter_percent bigint, p_lease_ms bigint, p_history_seconds bigint, p_history_rows bigint, p_max_taken bigint,
    p_max_taken_per_key bigint, p_rate_jobs bigint, p_rate_ms bigint, p_key_rate_jobs bigint,
    p_max_queue_readers bigint
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    v_is_unmarked boolean;
BEGIN
    IF p_folded_name IS DISTINCT FROM lower(p_name COLLATE "C") THEN
        PERFORM dialoq.fail(60005, format('the folded name of work queue ''%s'' is ''%s''; it must be ''%s''', p_name,
            p_folded_name, lower(p_name COLLATE "C")));
    END IF;
    INSERT INTO dialoq.work_queue AS q (
        queue_id, name, folded_name, is_enabled, work_order, has_history, take_by, max_attempts, retry_delay_ms,
        retry_factor_percent, max_retry_delay_ms, retry_jitter_percent, lease_ms, history_seconds, history_rows,
        max_taken, max_taken_per_key, rate_jobs, rate_ms, key_rate_jobs, max_queue_readers, are_jobs_marked
    ) VALUES (
        p_queue_id, p_name, p_folded_name, p_is_enabled, p_work_order, p_has_history, p_take_by, p_max_attempts, p_retry_delay_ms,
        p_retry_factor_percent, p_max_retry_delay_ms, p_retry_jitter_percent, p_lease_ms, p_history_seconds, p_history_rows,
        p_max_taken, p_max_taken_per_key, p_rate_jobs, p_rate_ms, p_key_rate_jobs, p_max_queue_readers,
        p_work_order <> 'FIFO_STRICT' AND p_max_taken_per_key + p_key_rate_jobs > 0
    ) ON CONFLICT (queue_id) DO UPDATE SET
        is_enabled = excluded.is_enabled, has_history = excluded.has_history, take_by = excluded.take_by,
        max_attempts = excluded.max_attempts, retry_delay_ms = excluded.retry_delay_ms, retry_factor_percent = excluded.retry_factor_percent,
        max_retry_delay_ms = excluded.max_retry_delay_ms, retry_jitter_percent = excluded.retry_jitter_percent,
        lease_ms = excluded.lease_ms, history_seconds = excluded.history_seconds, history_rows = excluded.history_rows,
        max_taken = excluded.max_taken, max_taken_per_key = excluded.max_taken_per_key, rate_jobs = excluded.rate_jobs,
        rate_ms = excluded.rate_ms, key_rate_jobs = excluded.key_rate_jobs,
        max_queue_readers = excluded.max_queue_readers,
        -- A push that reads the queue without these limits does not mark its job.
        are_jobs_marked = q.are_jobs_marked AND excluded.are_jobs_marked
    RETURNING dialoq.limits_keys(q) AND NOT q.are_jobs_marked INTO v_is_unmarked;
    IF v_is_unmarked THEN
        INSERT INTO dialoq.unmarked_work_queue AS u (queue_id) VALUES (p_queue_id)
        ON CONFLICT (queue_id) DO UPDATE SET after_xid = NULL, last_job_id = 0, has_passed_over = false;
        PERFORM dialoq.send_notices(dialoq.due_notice(dialoq.current_time_utc()));
    END IF;
    INSERT INTO dialoq.work_limit (queue_id) VALUES (p_queue_id) ON CONFLICT DO NOTHING;
    -- Readers that wait for a rate are woken at its new times. A row that a take has locked has the times of that take.
    UPDATE dialoq.work_rate AS r
    SET wake_at = r.next_take - interval '1 microsecond'
        * dialoq.rate_burst(CASE WHEN r.is_of_key THEN p_key_rate_jobs ELSE p_rate_jobs END, p_rate_ms)
    WHERE r.ctid = ANY (ARRAY(
        SELECT f.ctid FROM dialoq.work_rate AS f
        WHERE f.queue_id = p_queue_id AND CASE WHEN f.is_of_key THEN p_key_rate_jobs ELSE p_rate_jobs END > 0
        FOR UPDATE SKIP LOCKED));
    -- HISTORY_ROWS may be lower: the rows are counted again.
    DELETE FROM dialoq.job_history_cut AS c WHERE c.queue_id = p_queue_id;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_work_queue', SQLERRM);
END
$$;

CREATE FUNCTION dialoq.delete_work_queue(p_queue_id integer)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_nestloop = off AS $$
DECLARE
    v_held bigint;
    v_name text;
    v_schedule text;
BEGIN
    PERFORM dialoq.check_range('p_queue_id', p_queue_id, -2147483648, 2147483647);
    SELECT q.name INTO v_name FROM dialoq.work_queue AS q WHERE q.queue_id = p_queue_id;
    v_name := coalesce(v_name, p_queue_id::text);
    SELECT s.name INTO v_schedule FROM dialoq.work_schedule AS s WHERE s.queue_id = p_queue_id ORDER BY s.name LIMIT 1;
    IF FOUND THEN
        PERFORM dialoq.fail(3716, format('work queue ''%s'' cannot be dropped: work schedule ''%s'' pushes into it; drop that first',
            v_name, v_schedule));
    END IF;
    -- A push or a take that has read the row before goes on; tick removes what it leaves.
    DELETE FROM dialoq.work_queue AS q WHERE q.queue_id = p_queue_id;
    -- Waits for a tick that is marking its jobs: the rows that it has locked would count as held.
    DELETE FROM dialoq.unmarked_work_queue AS u WHERE u.queue_id = p_queue_id;
    SELECT j.job_id INTO v_held FROM dialoq.job AS j WHERE j.queue_id = p_queue_id AND j.holder IS NOT NULL LIMIT 1;
    IF v_held IS NULL THEN
        -- A join by hash, also where the statistics are older than the jobs: with NOT IN the server compares each job with each other one if they do not fit into work_mem, and a queue of
        -- 200,000 jobs was not dropped after five minutes.
        WITH free AS MATERIALIZED (
            SELECT f.job_id FROM dialoq.job AS f WHERE f.queue_id = p_queue_id FOR UPDATE SKIP LOCKED)
        SELECT j.job_id INTO v_held
        FROM dialoq.job AS j
        LEFT JOIN free AS f ON f.job_id = j.job_id
        WHERE j.queue_id = p_queue_id AND f.job_id IS NULL
        LIMIT 1;
    END IF;
    IF v_held IS NOT NULL THEN
        PERFORM dialoq.fail(3716, format('work queue ''%s'' cannot be dropped: a transaction holds job %s; wait for its end',
            v_name, v_held));
    END IF;
    PERFORM dialoq.clear_work_queue(p_queue_id);
    INSERT INTO dialoq.dropped_work_queue (queue_id) VALUES (p_queue_id) ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT dialoq.publish_notices(dialoq.due_notice(dialoq.current_time_utc() + interval '1 second'));
END
$$;

-- Removes what belongs to a work queue. Rows of open transactions are passed over: a push that is open holds the unique key that it
-- has found over.
CREATE FUNCTION dialoq.clear_work_queue(p_queue_id integer)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    DELETE FROM dialoq.job AS j WHERE j.ctid = ANY (ARRAY(
        SELECT f.ctid FROM dialoq.job AS f WHERE f.queue_id = p_queue_id FOR UPDATE SKIP LOCKED));
    DELETE FROM dialoq.work_limit AS l WHERE l.ctid = ANY (ARRAY(
        SELECT f.ctid FROM dialoq.work_limit AS f WHERE f.queue_id = p_queue_id FOR UPDATE SKIP LOCKED));
    DELETE FROM dialoq.unique_job AS u WHERE u.ctid = ANY (ARRAY(
        SELECT f.ctid FROM dialoq.unique_job AS f WHERE f.queue_id = p_queue_id FOR UPDATE SKIP LOCKED));
    DELETE FROM dialoq.work_rate AS r WHERE r.queue_id = p_queue_id;
    DELETE FROM dialoq.job_history AS h WHERE h.queue_id = p_queue_id;
    DELETE FROM dialoq.job_history_cut AS c WHERE c.queue_id = p_queue_id;
END
$$;
