-- TAKE: jobs that are ready, to a reader. Never waits for a job. A job without a lease is completed by the commit of the transaction
-- that takes it, and a rollback gives it back as if it had not been taken. claim_jobs is for the transactions of Dialoq's
-- clients: a short transaction on another connection takes the jobs, so that the attempt counts although the transaction
-- that holds them is rolled back or dies.
-- Takes: the queue; how many at most, 1 to 10000; the type (NULL: any); bounds of the level, and whether age counts and not
--     level, in a queue of ORDER = PRIORITY; whether the jobs are leased (default: no; they are then completed by the commit),
--     and for how long in milliseconds (NULL: LEASE_MS of the queue; refused without a lease); the reader's name; claim_jobs: first the process and the transaction that hold the jobs, and the last token
--     that the transaction has got: jobs that it holds under later ones were claimed by a call whose answer was lost
-- Gives: the jobs in the order of their queue, notices in the first
-- Errors: 60002, 60005, 60043
-- Locks: the jobs, without waiting; in a queue with limits, the takes of other sessions, waiting as long as
--     their line moves
-- For: plain SQL (take_jobs)
-- Called by: dialoq_user (take_jobs, claim_jobs)
CREATE OR REPLACE FUNCTION dialoq.take_jobs(
    p_queue text, p_job_count bigint DEFAULT 1, p_job_type text DEFAULT NULL, p_lowest integer DEFAULT NULL,
    p_highest integer DEFAULT NULL, p_oldest boolean DEFAULT false, p_has_lease boolean DEFAULT false,
    p_lease_ms bigint DEFAULT NULL, p_taken_by text DEFAULT NULL)
RETURNS TABLE (
    job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_memoize = off
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_free text;
    v_is_client boolean := dialoq.is_client_call();
    v_now timestamptz;
    v_mark bigint;
    v_job record;
    v_is_found boolean;
BEGIN
    -- The transaction of a client's call ends soon. Another one may be in a DO block, a function of the user's or several statements sent as
    -- one, which go on: a take that found nothing there kept all others of a queue with limits waiting.
    IF v_is_client THEN
        -- Nearly every take is one of these; each further statement costs the server 10 to 20 us. Where this gives nothing, the general
        -- way says why: no job, no such queue, limits, a row that has changed since this began, or a server that has just started.
        IF p_job_count = 1 AND p_has_lease AND p_lease_ms IS NULL AND p_job_type IS NULL AND p_lowest IS NULL AND p_highest IS NULL
            AND p_oldest IS NOT TRUE AND (octet_length(p_taken_by) > 128) IS NOT TRUE AND dialoq.is_read_committed()
        THEN
            UPDATE dialoq.job AS j
            SET state = 2, attempts = j.attempts + 1, token = nextval('dialoq.next_job_token'),
                due_at = n.now + n.lease_ms * interval '1 millisecond', taken_at = n.now, taken_by = coalesce(p_taken_by, ''),
                progress = NULL, process = NULL, holder = NULL
            FROM (
                SELECT f.place, q.name, q.lease_ms, q.now, q.mark
                FROM (
                    SELECT w.queue_id, w.name, w.lease_ms, coalesce(b.manual_now, clock_timestamp()) AS now, r.mark
                    FROM dialoq.work_queue AS w, dialoq.broker AS b, dialoq.job_token_run AS r
                    WHERE w.folded_name = lower(p_queue COLLATE "C") AND w.is_enabled AND w.take_by IN ('DEFAULT', 'STATEMENT')
                        AND NOT dialoq.is_limited(w)
                    OFFSET 0) AS q
                CROSS JOIN LATERAL (
                    SELECT c.ctid AS place FROM dialoq.job AS c
                    WHERE c.queue_id = q.queue_id AND c.state = 1 AND c.rank_from_top BETWEEN 0 AND 9
                    ORDER BY c.rank_from_top, c.take_order LIMIT 1 FOR UPDATE SKIP LOCKED) AS f) AS n
            WHERE j.ctid = n.place
            RETURNING j.job_id, j.token, n.name, j.job_type, j.job_key, j.level::integer, j.attempts, j.pushed_at, j.pushed_by, j.due_at,
                j.last_error, j.body, n.now, n.mark
            INTO job_id, token, queue, job_type, job_key, level, attempt, pushed_at, pushed_by, lease_until, last_error, body, v_now, v_mark;
            IF FOUND THEN
                -- <job_taken>
            END IF;
        END IF;
        RETURN QUERY
        SELECT t.job_id, t.token, t.queue, t.job_type, t.job_key, t.level, t.attempt, t.pushed_at, t.pushed_by, t.lease_until, t.last_error,
            t.body, t.notices
        FROM dialoq.take_ready_jobs(p_queue, p_job_type, p_lowest, p_highest, p_oldest, ARRAY[p_job_count], ARRAY[p_has_lease IS TRUE],
            ARRAY[p_lease_ms], ARRAY[p_taken_by], NULL, NULL, NULL) AS t;
        RETURN;
    END IF;
    -- Its transaction may stay open, so no row may stay locked that is not taken.
    IF p_job_count = 1 AND p_has_lease IS NOT TRUE AND p_lease_ms IS NULL AND p_job_type IS NULL AND p_lowest IS NULL AND p_highest IS NULL AND p_oldest IS NOT TRUE
        AND (octet_length(p_taken_by) > 128) IS NOT TRUE AND dialoq.is_read_committed()
    THEN
        -- As above. A job that was passed over is locked by its taker, as a rule. But one that has changed since the statement began to
        -- read is locked by this transaction. So this looks whether those that were passed over are still as they were, and if
        -- one is not, a subtransaction gives the locks up.
        FOR v_try IN 1..10 LOOP
            BEGIN
                DELETE FROM dialoq.job AS j
                USING (
                    SELECT f.place, q.queue_id, q.name, q.has_history, q.now, q.mark, p.places, p.sum,
                        -- With both columns in one comparison the server reads the whole index.
                        CASE WHEN f.rank_from_top = 0 THEN true
                            ELSE NOT EXISTS (
                                SELECT FROM dialoq.job AS c
                                WHERE c.queue_id = q.queue_id AND c.state = 1 AND c.rank_from_top >= 0 AND c.rank_from_top < f.rank_from_top)
                        END AS is_near
                    FROM (
                        SELECT w.queue_id, w.name, w.has_history, coalesce(b.manual_now, clock_timestamp()) AS now, r.mark
                        FROM dialoq.work_queue AS w, dialoq.broker AS b, dialoq.job_token_run AS r
                        WHERE w.folded_name = lower(p_queue COLLATE "C") AND w.is_enabled AND NOT dialoq.is_limited(w)
                        OFFSET 0) AS q
                    CROSS JOIN LATERAL (
                        SELECT c.ctid AS place, c.rank_from_top, c.take_order FROM dialoq.job AS c
                        WHERE c.queue_id = q.queue_id AND c.state = 1 AND c.rank_from_top BETWEEN 0 AND 9
                        ORDER BY c.rank_from_top, c.take_order LIMIT 1 FOR UPDATE SKIP LOCKED) AS f
                    -- Those of its rank before it that this statement can see.
                    CROSS JOIN LATERAL (
                        SELECT array_agg(o.place) AS places, sum(o.job_id) AS sum
                        FROM (
                            SELECT c.ctid AS place, c.job_id FROM dialoq.job AS c
                            WHERE c.queue_id = q.queue_id AND c.state = 1 AND c.rank_from_top = f.rank_from_top
                                AND c.take_order < f.take_order
                            ORDER BY c.take_order LIMIT 200) AS o
                        OFFSET 0) AS p) AS n
                WHERE j.ctid = n.place AND j.unique_key IS NULL
                RETURNING j.job_id, j.attempts + 1 AS attempt, j.level::integer AS level, j.pushed_at, j.job_type, j.job_key, j.pushed_by,
                    j.last_error, j.body, n.queue_id, n.name, n.has_history, n.now, n.mark, n.is_near, n.places, n.sum
                INTO v_job;
                v_is_found := FOUND;
                IF NOT v_is_found OR NOT v_job.is_near OR cardinality(v_job.places) = 200 THEN
                    v_is_found := false;
                    RAISE EXCEPTION USING ERRCODE = 'SBZZZ';
                ELSIF v_job.places IS NOT NULL THEN
                    PERFORM FROM (
                        SELECT count(*) AS n, sum(c.job_id) AS sum FROM dialoq.job AS c
                        WHERE c.ctid = ANY (v_job.places) AND c.state::integer = 1) AS s
                    WHERE s.n = cardinality(v_job.places) AND s.sum = v_job.sum;
                    IF NOT FOUND THEN
                        RAISE EXCEPTION USING ERRCODE = 'SBZZZ';
                    END IF;
                END IF;
                token := nextval('dialoq.next_job_token');
                IF token + 1000000 >= v_job.mark THEN
                    PERFORM dialoq.reserve_tokens();
                END IF;
                IF v_job.has_history THEN
                    INSERT INTO dialoq.job_history (
                        queue_id, job_id, finished_as, level, attempts, pushed_at, taken_at, finished_at, job_type, job_key, pushed_by,
                        taken_by, last_error)
                    VALUES (
                        v_job.queue_id, v_job.job_id, 4, v_job.level, v_job.attempt, v_job.pushed_at, v_job.now, v_job.now, v_job.job_type,
                        v_job.job_key, v_job.pushed_by, coalesce(p_taken_by, ''), v_job.last_error);
                END IF;
                job_id := v_job.job_id;
                queue := v_job.name;
                job_type := v_job.job_type;
                job_key := v_job.job_key;
                level := v_job.level;
                attempt := v_job.attempt;
                pushed_at := v_job.pushed_at;
                pushed_by := v_job.pushed_by;
                last_error := v_job.last_error;
                body := v_job.body;
                RETURN NEXT;
                RETURN;
            EXCEPTION WHEN SQLSTATE 'SBZZZ' THEN
                EXIT WHEN NOT v_is_found;
            END;
        END LOOP;
    END IF;
    WHILE v_free IS DISTINCT FROM '{}' LOOP
        BEGIN
            RETURN QUERY
            SELECT t.job_id, t.token, t.queue, t.job_type, t.job_key, t.level, t.attempt, t.pushed_at, t.pushed_by, t.lease_until, t.last_error,
                t.body, t.notices
            FROM dialoq.take_ready_jobs(p_queue, p_job_type, p_lowest, p_highest, p_oldest, ARRAY[p_job_count], ARRAY[p_has_lease IS TRUE],
                ARRAY[p_lease_ms], ARRAY[p_taken_by], NULL, NULL, NULL, true, v_free::bigint[]) AS t;
            IF NOT FOUND THEN
                -- Gives up the lock of lock_limits: this transaction may stay open, and has taken nothing.
                RAISE EXCEPTION USING ERRCODE = 'SBZZZ', DETAIL = '{}';
            END IF;
            RETURN;
        EXCEPTION WHEN SQLSTATE 'SBZZZ' THEN
            GET STACKED DIAGNOSTICS v_free = PG_EXCEPTION_DETAIL;
        END;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION dialoq.claim_jobs(
    p_process uuid, p_holder uuid, p_last_token bigint, p_queue text, p_job_count bigint, p_job_type text, p_lowest integer,
    p_highest integer, p_oldest boolean, p_has_lease boolean, p_lease_ms bigint, p_taken_by text)
RETURNS TABLE (
    job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_memoize = off
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_mark bigint;
    v_off text;
BEGIN
    IF p_process IS NULL OR p_holder IS NULL THEN
        PERFORM dialoq.check_id('p_process', p_process);
        PERFORM dialoq.check_id('p_holder', p_holder);
    END IF;
    -- As begin_claim: an expression, which costs the server a tenth of a call.
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        PERFORM dialoq.begin_claim();
    END IF;
    v_off := set_config('synchronous_commit', 'off', true);
    -- Nearly every claim is one of these; as take_jobs. A transaction that holds jobs goes the general way, which gives back those of
    -- a claim whose answer was lost.
    IF p_job_count = 1 AND p_has_lease IS NOT TRUE AND p_lease_ms IS NULL AND p_job_type IS NULL AND p_lowest IS NULL AND p_highest IS NULL
        AND p_oldest IS NOT TRUE AND (octet_length(p_taken_by) > 128) IS NOT TRUE AND dialoq.is_read_committed()
    THEN
        UPDATE dialoq.job AS j
        SET state = 2, attempts = j.attempts + 1, token = nextval('dialoq.next_job_token'), due_at = NULL, taken_at = n.now,
            taken_by = coalesce(p_taken_by, ''), progress = NULL, process = p_process, holder = p_holder
        FROM (
            SELECT f.place, q.name, q.now, q.mark
            FROM (
                SELECT w.queue_id, w.name, coalesce(b.manual_now, clock_timestamp()) AS now, r.mark
                FROM dialoq.work_queue AS w, dialoq.broker AS b, dialoq.job_token_run AS r
                WHERE w.folded_name = lower(p_queue COLLATE "C") AND w.is_enabled AND w.take_by IN ('DEFAULT', 'STATEMENT')
                    AND NOT dialoq.is_limited(w)
                    AND NOT EXISTS (SELECT FROM dialoq.job AS h WHERE h.process = p_process AND h.holder = p_holder)
                OFFSET 0) AS q
            CROSS JOIN LATERAL (
                SELECT c.ctid AS place FROM dialoq.job AS c
                WHERE c.queue_id = q.queue_id AND c.state = 1 AND c.rank_from_top BETWEEN 0 AND 9
                ORDER BY c.rank_from_top, c.take_order LIMIT 1 FOR UPDATE SKIP LOCKED) AS f) AS n
        WHERE j.ctid = n.place
        RETURNING j.job_id, j.token, n.name, j.job_type, j.job_key, j.level::integer, j.attempts, j.pushed_at, j.pushed_by, j.last_error,
            j.body, n.mark
        INTO job_id, token, queue, job_type, job_key, level, attempt, pushed_at, pushed_by, last_error, body, v_mark;
        IF FOUND THEN
            IF token + 1000000 >= v_mark THEN
                PERFORM dialoq.reserve_tokens();
            END IF;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    RETURN QUERY
    SELECT t.job_id, t.token, t.queue, t.job_type, t.job_key, t.level, t.attempt, t.pushed_at, t.pushed_by, t.lease_until, t.last_error,
        t.body, t.notices
    FROM dialoq.take_ready_jobs(p_queue, p_job_type, p_lowest, p_highest, p_oldest, ARRAY[p_job_count], ARRAY[p_has_lease IS TRUE],
        ARRAY[p_lease_ms], ARRAY[p_taken_by], p_process, ARRAY[p_holder],
        dialoq.return_lost_claims(p_process, ARRAY[p_holder], ARRAY[p_last_token])) AS t;
END $$;
