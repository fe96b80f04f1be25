-- COMPLETE and TAKE in one: a leased job is done, and its reader gets the next ones. Both are done or none, by one commit.
-- Takes: the job, the token of its taking and the result, as complete_job; the queue, how many at most, the type, the length of the
--     leases and the reader's name, as take_jobs with leases
-- Gives: the jobs as take_jobs, notices in the first; one row with notices only, for a client of Dialoq, if the completion has some
-- Errors: 8459, 60002, 60005, 60040, 60041, 60042, 60043: then the job is not completed
-- Locks: as complete_job, then as take_jobs
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.complete_and_take_job(
    p_job_id bigint, p_token bigint, p_result bytea, p_queue text, p_job_count bigint DEFAULT 1, p_job_type text DEFAULT NULL,
    p_lease_ms bigint DEFAULT NULL, p_taken_by text DEFAULT NULL)
RETURNS TABLE (
    job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_memoize = off
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_is_client boolean := dialoq.is_client_call();
    v_is_completed boolean;
    v_now timestamptz;
    v_mark bigint;
    v_notices text;
BEGIN
    -- Nearly every call is one of these: what complete_job and take_jobs do on their short ways, in one statement. Where it does not
    -- complete the job, or finds no other, the general way does that part and says why.
    IF p_job_count = 1 AND p_job_type IS NULL AND p_lease_ms IS NULL
        AND (octet_length(p_result) > 500000000 OR octet_length(p_taken_by) > 128) IS NOT TRUE AND dialoq.is_read_committed()
        AND v_is_client
    THEN
        WITH queue AS MATERIALIZED (
            SELECT w.queue_id, w.name, w.lease_ms, coalesce(b.manual_now, clock_timestamp()) AS now, r.mark
            FROM dialoq.work_queue AS w, dialoq.broker AS b, dialoq.job_token_run AS r
            WHERE w.folded_name = lower(p_queue COLLATE "C") AND w.is_enabled AND w.take_by IN ('DEFAULT', 'STATEMENT')
                AND NOT dialoq.is_limited(w)
        ), gone AS MATERIALIZED (
            DELETE FROM dialoq.job AS d
            USING (
                SELECT t.ctid AS place, q.now, w.has_history
                FROM queue AS q
                CROSS JOIN dialoq.job AS t
                JOIN dialoq.work_queue AS w ON w.queue_id = t.queue_id
                -- In a form that names no partial index: its statistics may be those of an empty one.
                WHERE t.job_id = p_job_id AND t.token = p_token AND t.state::integer = 2 AND t.holder IS NULL
                    AND (t.due_at > q.now) IS TRUE AND t.unique_key IS NULL AND NOT dialoq.is_limited(w)
                FOR UPDATE OF t SKIP LOCKED) AS k
            WHERE d.ctid = k.place
            RETURNING d.queue_id, d.level, d.attempts, d.pushed_at, d.taken_at, d.job_type, d.job_key, d.pushed_by, d.taken_by,
                d.last_error, k.now, k.has_history
        ), kept AS (
            INSERT INTO dialoq.job_history (
                queue_id, job_id, finished_as, level, attempts, pushed_at, taken_at, finished_at, job_type, job_key, pushed_by,
                taken_by, last_error, result)
            SELECT g.queue_id, p_job_id, 4, g.level, g.attempts, g.pushed_at, g.taken_at, g.now, g.job_type, g.job_key, g.pushed_by,
                g.taken_by, g.last_error, CASE WHEN length(p_result) > 0 THEN p_result END
            FROM gone AS g WHERE g.has_history
        ), taken AS (
            UPDATE dialoq.job AS j
            SET state = 2, attempts = j.attempts + 1, token = nextval('dialoq.next_job_token'),
                due_at = n.now + n.lease_ms * interval '1 millisecond', taken_at = n.now, taken_by = coalesce(p_taken_by, ''),
                progress = NULL, process = NULL, holder = NULL
            FROM (
                SELECT f.place, q.name, q.lease_ms, q.now, q.mark
                FROM queue AS q
                CROSS JOIN LATERAL (
                    SELECT c.ctid AS place FROM dialoq.job AS c
                    WHERE c.queue_id = q.queue_id AND c.state = 1 AND c.rank_from_top BETWEEN 0 AND 9
                    ORDER BY c.rank_from_top, c.take_order LIMIT 1 FOR UPDATE SKIP LOCKED) AS f
                WHERE EXISTS (SELECT FROM gone)) AS n
            WHERE j.ctid = n.place
            RETURNING j.job_id, j.token, n.name, j.job_type, j.job_key, j.level::integer AS level, j.attempts, j.pushed_at, j.pushed_by,
                j.due_at, j.last_error, j.body, n.now, n.mark
        )
        SELECT true, t.job_id, t.token, t.name, t.job_type, t.job_key, t.level, t.attempts, t.pushed_at, t.pushed_by, t.due_at,
            t.last_error, t.body, t.now, t.mark
        INTO v_is_completed, job_id, token, queue, job_type, job_key, level, attempt, pushed_at, pushed_by, lease_until, last_error, body,
            v_now, v_mark
        FROM gone AS g LEFT JOIN taken AS t ON true;
        IF job_id IS NOT NULL THEN
            -- <job_taken>
        END IF;
    END IF;
    IF v_is_completed IS NOT TRUE THEN
        SELECT c.notices INTO v_notices FROM dialoq.complete_job(p_job_id, p_token, p_result) AS c;
    END IF;
    RETURN QUERY
    SELECT * FROM dialoq.take_jobs(p_queue, p_job_count, p_job_type, NULL, NULL, false, true, p_lease_ms, p_taken_by);
    IF v_notices IS NOT NULL AND v_is_client THEN
        job_id := NULL;
        notices := v_notices;
        RETURN NEXT;
    END IF;
END $$;
