-- TAKE: jobs that are ready, to a reader. Never waits for a job. A job without a lease is completed by the commit of the transaction
-- that takes it, and a rollback gives it back as if it had not been taken. claim_jobs is for the transactions of Dialoq's
-- clients: a short transaction on another connection takes the jobs, so that the attempt counts although the transaction
-- that holds them is rolled back or dies.
-- Takes: the queue; how many at most, 1 to 10000; the type (NULL: any); bounds of the level, and whether age counts and not
--     level, in a queue of ORDER = PRIORITY; whether the jobs are leased, and for how long in milliseconds (NULL: LEASE_MS of
--     the queue); the reader's name; claim_jobs: first the process and the transaction that hold the jobs, and the last token
--     that the transaction has got: jobs that it holds under later ones were claimed by a call whose answer was lost
-- Gives: the jobs in the order of their queue, notices in the first
-- Errors: 60002, 60005, 60043
-- Locks: the jobs, without waiting; in a queue with limits, the takes of other sessions, waiting as long as
--     their line moves
-- Called by: dialoq_user (take_jobs, claim_jobs)
CREATE OR REPLACE FUNCTION dialoq.take_jobs(
    p_queue text, p_job_count bigint DEFAULT 1, p_job_type text DEFAULT NULL, p_lowest integer DEFAULT NULL,
    p_highest integer DEFAULT NULL, p_oldest boolean DEFAULT false, p_has_lease boolean DEFAULT false,
    p_lease_ms bigint DEFAULT NULL, p_taken_by text DEFAULT NULL)
RETURNS TABLE (
    job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_free text;
BEGIN
    -- A statement that begins its transaction also ends it, as a rule.
    IF dialoq.is_client_call() OR transaction_timestamp() = statement_timestamp() THEN
        RETURN QUERY
        SELECT t.job_id, t.token, t.queue, t.job_type, t.job_key, t.level, t.attempt, t.pushed_at, t.pushed_by, t.lease_until, t.last_error,
            t.body, t.notices
        FROM dialoq.take_ready_jobs(p_queue, p_job_type, p_lowest, p_highest, p_oldest, ARRAY[p_job_count], ARRAY[p_has_lease IS TRUE],
            ARRAY[p_lease_ms], ARRAY[p_taken_by], NULL, NULL, NULL) AS t;
        RETURN;
    END IF;
    -- Its transaction may stay open, so no row may stay locked that is not taken.
    WHILE v_free IS DISTINCT FROM '{}' LOOP
        BEGIN
            RETURN QUERY
            SELECT t.job_id, t.token, t.queue, t.job_type, t.job_key, t.level, t.attempt, t.pushed_at, t.pushed_by, t.lease_until, t.last_error,
                t.body, t.notices
            FROM dialoq.take_ready_jobs(p_queue, p_job_type, p_lowest, p_highest, p_oldest, ARRAY[p_job_count], ARRAY[p_has_lease IS TRUE],
                ARRAY[p_lease_ms], ARRAY[p_taken_by], NULL, NULL, NULL, true, v_free::bigint[]) AS t;
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
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    PERFORM dialoq.check_id('p_process', p_process);
    PERFORM dialoq.check_id('p_holder', p_holder);
    PERFORM dialoq.begin_claim();
    RETURN QUERY
    SELECT t.job_id, t.token, t.queue, t.job_type, t.job_key, t.level, t.attempt, t.pushed_at, t.pushed_by, t.lease_until, t.last_error,
        t.body, t.notices
    FROM dialoq.take_ready_jobs(p_queue, p_job_type, p_lowest, p_highest, p_oldest, ARRAY[p_job_count], ARRAY[p_has_lease IS TRUE],
        ARRAY[p_lease_ms], ARRAY[p_taken_by], p_process, ARRAY[p_holder],
        dialoq.return_lost_claims(p_process, ARRAY[p_holder], ARRAY[p_last_token])) AS t;
END $$;
