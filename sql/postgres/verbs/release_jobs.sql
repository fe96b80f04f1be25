-- What a client of Dialoq reports about the jobs that it has taken, besides the verbs of its caller: who reports, the end of
-- a transaction that holds jobs, and jobs that no reader has seen.
-- Takes: the process and the transaction that hold the jobs; own_jobs: nothing more; finish_held_jobs: its jobs that were not
--     reported; release_jobs: the tokens of those that are released, after the
--     first and up to the last, and whether that is a failed attempt;
--     return_jobs: jobs and the tokens of their takings; job_holders: the process alone
-- Gives: notices; release_jobs, return_jobs: has_more, whether another session has locked some of them; job_holders: holder, each
--     transaction of the process that holds jobs
-- Errors: 60005; finish_held_jobs: 60042 if it no longer holds them all
-- Locks: the jobs; finish_held_jobs waits for sessions that look at them
-- Called by: dialoq_user (own_jobs, finish_held_jobs, release_jobs, return_jobs, job_holders)

-- The rest of this transaction may change the jobs of that holder.
CREATE OR REPLACE FUNCTION dialoq.own_jobs(p_holder uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM dialoq.check_id('p_holder', p_holder);
    PERFORM set_config('dialoq.holder', p_holder::text, true);
END $$;

-- The last call of a transaction before its COMMIT: its jobs are done, but those that it has leased.
CREATE OR REPLACE FUNCTION dialoq.finish_held_jobs(p_process uuid, p_holder uuid, p_job_ids bigint[])
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_now timestamptz;
    v_held tid[];
    v_leased tid[];
    v_due timestamptz;
    v_done record;
BEGIN
    IF cardinality(p_job_ids) = 1 THEN
        -- As complete_job.
        DELETE FROM dialoq.job AS d
        USING dialoq.work_queue AS w, (SELECT coalesce(b.manual_now, clock_timestamp()) AS now FROM dialoq.broker AS b OFFSET 0) AS n
        WHERE d.job_id = p_job_ids[1] AND (d.process = p_process) IS TRUE AND (d.holder = p_holder) IS TRUE AND d.state::integer = 2
            AND d.due_at IS NULL AND d.unique_key IS NULL AND w.queue_id = d.queue_id
        RETURNING d.queue_id, d.level, d.attempts, d.pushed_at, d.taken_at, d.job_type, d.job_key, d.pushed_by, d.taken_by,
            d.last_error, n.now, w.has_history, dialoq.is_limited(w) AS is_limited
        INTO v_done;
        IF FOUND THEN
            IF v_done.has_history THEN
                INSERT INTO dialoq.job_history (
                    queue_id, job_id, finished_as, level, attempts, pushed_at, taken_at, finished_at, job_type, job_key, pushed_by,
                    taken_by, last_error)
                VALUES (
                    v_done.queue_id, p_job_ids[1], 4, v_done.level, v_done.attempts, v_done.pushed_at, v_done.taken_at, v_done.now,
                    v_done.job_type, v_done.job_key, v_done.pushed_by, v_done.taken_by, v_done.last_error);
            END IF;
            IF v_done.is_limited THEN
                notices := dialoq.publish_notices('q:' || v_done.queue_id::text);
            END IF;
            RETURN NEXT;
            RETURN;
        END IF;
        SELECT CASE WHEN f.due_at IS NULL THEN ARRAY[f.ctid] ELSE '{}' END, CASE WHEN f.due_at IS NULL THEN '{}' ELSE ARRAY[f.ctid] END,
            f.due_at
        INTO v_held, v_leased, v_due
        FROM dialoq.job AS f
        WHERE f.job_id = p_job_ids[1] AND f.process = p_process AND f.holder = p_holder AND f.state::integer = 2
        FOR UPDATE;
    ELSE
        SELECT coalesce(array_agg(j.ctid) FILTER (WHERE j.due_at IS NULL), '{}'),
            coalesce(array_agg(j.ctid) FILTER (WHERE j.due_at IS NOT NULL), '{}'), min(j.due_at)
        INTO v_held, v_leased, v_due
        FROM (
            SELECT f.ctid, f.due_at FROM dialoq.job AS f
            WHERE f.job_id = ANY (p_job_ids) AND f.process = p_process AND f.holder = p_holder AND f.state::integer = 2
            FOR UPDATE) AS j;
    END IF;
    v_now := dialoq.current_time_utc();
    v_held := coalesce(v_held, '{}');
    v_leased := coalesce(v_leased, '{}');
    IF cardinality(v_held) + cardinality(v_leased) < cardinality(p_job_ids) THEN
        PERFORM dialoq.fail(60042, format('the transaction no longer holds all jobs that it took: its process counted as ended, '
            'and the attempts as failed; %s of %s are left', cardinality(v_held) + cardinality(v_leased), cardinality(p_job_ids)));
    END IF;
    IF cardinality(v_leased) > 0 THEN
        UPDATE dialoq.job AS j SET process = NULL, holder = NULL WHERE j.ctid = ANY (v_leased);
    END IF;
    v_done := dialoq.finish_jobs(v_held, 4, NULL, v_now);
    notices := dialoq.publish_notices(concat_ws(' ', v_done.notices,
        CASE WHEN v_due < v_now + interval '1 minute' THEN dialoq.due_notice(v_due) END));
    RETURN NEXT;
END $$;

-- Gives back the jobs of a transaction that was rolled back, or whose savepoint was: there it is no attempt.
CREATE OR REPLACE FUNCTION dialoq.release_jobs(p_process uuid, p_holder uuid, p_after_token bigint, p_last_token bigint, p_is_attempt boolean)
RETURNS TABLE (has_more boolean, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_now timestamptz := dialoq.current_time_utc();
    v_id bigint;
    v_notices text;
BEGIN
    FOR v_id IN
        SELECT j.job_id FROM dialoq.job AS j
        WHERE j.process = p_process AND j.holder = p_holder AND j.token > p_after_token AND j.token <= p_last_token
        FOR UPDATE SKIP LOCKED
    LOOP
        IF p_is_attempt THEN
            SELECT dialoq.distinct_notices(concat_ws(' ', v_notices, f.notices)) INTO v_notices
            FROM dialoq.fail_attempt(v_id, 'its transaction was rolled back', NULL, false, v_now) AS f;
        ELSE
            v_notices := dialoq.distinct_notices(concat_ws(' ', v_notices, dialoq.return_job(v_id)));
        END IF;
    END LOOP;
    RETURN QUERY
    SELECT EXISTS (
        SELECT FROM dialoq.job AS j WHERE j.process = p_process AND j.holder = p_holder AND j.token > p_after_token AND j.token <= p_last_token),
        dialoq.publish_notices(v_notices);
END $$;

-- Gives back leased jobs whose reader went away before it saw them.
CREATE OR REPLACE FUNCTION dialoq.return_jobs(p_job_ids bigint[], p_tokens bigint[])
RETURNS TABLE (has_more boolean, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_id bigint;
    v_notices text;
BEGIN
    FOR v_id IN
        SELECT j.job_id
        FROM unnest(p_job_ids, p_tokens) AS t (job_id, token)
        CROSS JOIN LATERAL (
            SELECT f.job_id FROM dialoq.job AS f
            -- In a form that names no partial index, as complete_job.
            WHERE f.job_id = t.job_id AND f.token = t.token AND f.state::integer = 2 AND f.holder IS NULL FOR UPDATE SKIP LOCKED) AS j
    LOOP
        v_notices := dialoq.distinct_notices(concat_ws(' ', v_notices, dialoq.return_job(v_id)));
    END LOOP;
    RETURN QUERY
    SELECT EXISTS (
        SELECT FROM unnest(p_job_ids, p_tokens) AS t (job_id, token)
        -- With OFFSET, because a join may read the whole table.
        CROSS JOIN LATERAL (
            SELECT FROM dialoq.job AS f
            WHERE f.job_id = t.job_id AND f.token = t.token AND f.state::integer = 2 AND f.holder IS NULL OFFSET 0) AS j),
        dialoq.publish_notices(v_notices);
END $$;

-- The transactions of a process that hold jobs. A claim whose call was lost may commit after its transaction has ended; then
-- only the process itself knows that no transaction of it holds the jobs.
CREATE OR REPLACE FUNCTION dialoq.job_holders(p_process uuid)
RETURNS TABLE (holder uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    PERFORM dialoq.check_id('p_process', p_process);
    RETURN QUERY
    SELECT DISTINCT j.holder FROM dialoq.job AS j WHERE j.process = p_process AND j.holder IS NOT NULL;
END $$;
