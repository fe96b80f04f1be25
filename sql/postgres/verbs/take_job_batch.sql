-- TAKEs of different callers from one work queue in one transaction: by leases, and, for the transactions of Dialoq's
-- clients, as claim_jobs (in take_jobs.sql).
-- Takes: the queue; the type (NULL: any); for each caller how many jobs at most, the length of its leases in milliseconds
--     (NULL: LEASE_MS of the queue), the reader's name; claim_job_batch: first the process; of each caller the transaction and
--     its last token; last the take_order at which the search of a queue in the order of
--     arrival begins (NULL: at the first job): older jobs are tried only if there are too few others
-- Gives: the jobs in the order of their queue, each with the place of its caller from 0, notices in the first; the callers are
--     served in their order
-- Errors: 60002, 60005, 60043: then none is taken
-- Locks: the jobs, without waiting; in a queue with limits, the takes of other sessions, waiting as long as
--     their line moves
-- For: plain SQL (take_job_batch)
-- Called by: dialoq_user (take_job_batch, claim_job_batch)
CREATE OR REPLACE FUNCTION dialoq.take_job_batch(
    p_queue text, p_job_type text, p_job_counts bigint[], p_leases_ms bigint[], p_taken_by text[], p_from_order bigint DEFAULT NULL)
RETURNS TABLE (
    item integer, job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_count integer := cardinality(p_job_counts);
    v_free text;
BEGIN
    IF v_count = 0 THEN
        RETURN;
    ELSIF (dialoq.is_column(p_job_counts, v_count) AND dialoq.is_column(p_leases_ms, v_count)
        AND dialoq.is_column(p_taken_by, v_count)) IS NOT TRUE
    THEN
        PERFORM dialoq.refuse_columns('take_job_batch');
    END IF;
    -- As take_jobs.
    IF dialoq.is_client_call() THEN
        RETURN QUERY
        SELECT * FROM dialoq.take_ready_jobs(p_queue, p_job_type, NULL, NULL, NULL, p_job_counts, array_fill(true, ARRAY[v_count]),
            p_leases_ms, p_taken_by, NULL, NULL, NULL, p_from_order => p_from_order);
        RETURN;
    END IF;
    WHILE v_free IS DISTINCT FROM '{}' LOOP
        BEGIN
            RETURN QUERY
            SELECT * FROM dialoq.take_ready_jobs(p_queue, p_job_type, NULL, NULL, NULL, p_job_counts, array_fill(true, ARRAY[v_count]),
                p_leases_ms, p_taken_by, NULL, NULL, NULL, true, v_free::bigint[], p_from_order => p_from_order);
            IF NOT FOUND THEN
                -- As take_jobs.
                RAISE EXCEPTION USING ERRCODE = 'SBZZZ', DETAIL = '{}';
            END IF;
            RETURN;
        EXCEPTION WHEN SQLSTATE 'SBZZZ' THEN
            GET STACKED DIAGNOSTICS v_free = PG_EXCEPTION_DETAIL;
        END;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION dialoq.claim_job_batch(
    p_process uuid, p_queue text, p_job_type text, p_holders uuid[], p_last_tokens bigint[], p_job_counts bigint[], p_taken_by text[],
    p_from_order bigint DEFAULT NULL)
RETURNS TABLE (
    item integer, job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_count integer := cardinality(p_job_counts);
    v_off text;
BEGIN
    IF v_count = 0 THEN
        RETURN;
    ELSIF (dialoq.is_column(p_job_counts, v_count) AND dialoq.is_column(p_holders, v_count)
        AND dialoq.is_column(p_last_tokens, v_count) AND dialoq.is_column(p_taken_by, v_count)) IS NOT TRUE
    THEN
        PERFORM dialoq.refuse_columns('claim_job_batch');
    END IF;
    IF p_process IS NULL THEN
        PERFORM dialoq.check_id('p_process', p_process);
    END IF;
    IF array_position(p_holders, NULL) > 0 THEN
        PERFORM dialoq.check_id('a member of p_holders', NULL);
    END IF;
    -- As claim_jobs.
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        PERFORM dialoq.begin_claim();
    END IF;
    v_off := set_config('synchronous_commit', 'off', true);
    RETURN QUERY
    SELECT * FROM dialoq.take_ready_jobs(p_queue, p_job_type, NULL, NULL, NULL, p_job_counts, array_fill(false, ARRAY[v_count]),
        array_fill(NULL::bigint, ARRAY[v_count]), p_taken_by, p_process, p_holders,
        dialoq.return_lost_claims(p_process, p_holders, p_last_tokens), p_from_order => p_from_order);
END $$;
