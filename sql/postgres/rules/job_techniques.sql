-- How takes of a queue without limits lock and mark its jobs, by TAKE_BY of the queue. Every technique locks each row before
-- it marks it, so takes by different techniques may run at the same time.
-- Takes, Gives, Errors, Locks: see each function

-- Lets the takes of a work queue choose their jobs one after the other, or the rollbacks of a queue be counted so, to the end of the
-- transaction, which is short. Every role that may connect could hold the lock, so after 100 ms a take goes on without it: no job goes
-- to two readers, because rows are locked too. So does a count.
CREATE OR REPLACE FUNCTION dialoq.line_up(p_queue_id integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    -- Our prefix, 32 bits of the queue.
    v_key bigint := (17491::bigint << 48) | (p_queue_id::bigint << 16);
    v_timeout text;
BEGIN
    IF pg_try_advisory_xact_lock(v_key) THEN
        RETURN;
    END IF;
    v_timeout := current_setting('lock_timeout');
    BEGIN
        PERFORM set_config('lock_timeout', '100ms', true);
        PERFORM pg_advisory_xact_lock(v_key);
        PERFORM set_config('lock_timeout', v_timeout, true);
    EXCEPTION WHEN lock_not_available THEN
        NULL;
    END;
END $$;

-- Which reader gets each job, in the order of the jobs. NULL if there is one reader only.
CREATE OR REPLACE FUNCTION dialoq.readers_in_order(p_job_counts bigint[], p_count bigint) RETURNS integer[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN cardinality(p_job_counts) > 1 THEN ARRAY(
        SELECT c.place::integer FROM unnest(p_job_counts) WITH ORDINALITY AS c (n, place), generate_series(1, c.n)
        ORDER BY c.place LIMIT p_count) END
$$;

-- Takes jobs by one statement that chooses, locks and marks them.
-- Takes: the queue; the type (NULL: any); the ranks; of each reader the count, the end of its leases, the name; how many in all;
--     the process and the transactions that hold the jobs; the notices for the first row
-- Gives: as take_ready_jobs
CREATE OR REPLACE FUNCTION dialoq.take_by_cte(
    q dialoq.work_queue, p_job_type text, p_from integer, p_to integer, p_job_counts bigint[], p_count bigint,
    p_untils timestamptz[], p_taken_by text[], p_process uuid, p_holders uuid[], p_notices text, p_now timestamptz)
RETURNS TABLE (
    item integer, job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_items integer[] := dialoq.readers_in_order(p_job_counts, p_count);
BEGIN
    -- The rows are found again by their ids: a row that has changed since the statement began is at another place.
    IF p_job_type IS NULL THEN
        RETURN QUERY
        WITH next AS MATERIALIZED (
            SELECT j.job_id FROM dialoq.job AS j
            WHERE j.queue_id = q.queue_id AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
            ORDER BY j.rank_from_top, j.take_order LIMIT p_count FOR UPDATE SKIP LOCKED
        ), placed AS MATERIALIZED (
            SELECT p.job_id, p.place, CASE WHEN v_items IS NULL THEN 1 ELSE v_items[p.place] END AS item
            FROM (SELECT n.job_id, row_number() OVER () AS place FROM next AS n) AS p
        ), taken AS (
            -- <mark_taken>
        )
        SELECT t.item - 1, t.job_id, t.token, q.name, t.job_type, t.job_key, t.level::integer, t.attempts, t.pushed_at, t.pushed_by,
            t.due_at, t.last_error, t.body, CASE t.place WHEN 1 THEN p_notices END
        FROM taken AS t
        ORDER BY t.place;
        RETURN;
    END IF;
    RETURN QUERY
    WITH next AS MATERIALIZED (
        SELECT j.job_id FROM dialoq.job AS j
        WHERE j.queue_id = q.queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
        ORDER BY j.rank_from_top, j.take_order LIMIT p_count FOR UPDATE SKIP LOCKED
    ), placed AS MATERIALIZED (
        SELECT p.job_id, p.place, CASE WHEN v_items IS NULL THEN 1 ELSE v_items[p.place] END AS item
        FROM (SELECT n.job_id, row_number() OVER () AS place FROM next AS n) AS p
    ), taken AS (
        -- <mark_taken>
    )
    SELECT t.item - 1, t.job_id, t.token, q.name, t.job_type, t.job_key, t.level::integer, t.attempts, t.pushed_at, t.pushed_by,
        t.due_at, t.last_error, t.body, CASE t.place WHEN 1 THEN p_notices END
    FROM taken AS t
    ORDER BY t.place;
END $$;

-- Takes jobs by a cursor that locks one job after the other; each is marked before the next one is looked for.
-- Takes, Gives: as take_by_cte
CREATE OR REPLACE FUNCTION dialoq.take_by_cursor(
    q dialoq.work_queue, p_job_type text, p_from integer, p_to integer, p_job_counts bigint[], p_count bigint,
    p_untils timestamptz[], p_taken_by text[], p_process uuid, p_holders uuid[], p_notices text, p_now timestamptz)
RETURNS TABLE (
    item integer, job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_items integer[] := dialoq.readers_in_order(p_job_counts, p_count);
    v_next refcursor;
    v_job record;
    v_reader integer := 1;
BEGIN
    IF p_job_type IS NULL THEN
        OPEN v_next FOR
            SELECT j.job_id FROM dialoq.job AS j
            WHERE j.queue_id = q.queue_id AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
            ORDER BY j.rank_from_top, j.take_order FOR UPDATE SKIP LOCKED;
    ELSE
        OPEN v_next FOR
            SELECT j.job_id FROM dialoq.job AS j
            WHERE j.queue_id = q.queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
            ORDER BY j.rank_from_top, j.take_order FOR UPDATE SKIP LOCKED;
    END IF;
    FOR v_place IN 1..p_count LOOP
        FETCH v_next INTO v_job;
        EXIT WHEN NOT FOUND;
        IF v_items IS NOT NULL THEN
            v_reader := v_items[v_place];
        END IF;
        UPDATE dialoq.job AS j
        SET state = 2, attempts = j.attempts + 1,
            token = nextval('dialoq.next_job_token'), due_at = p_untils[v_reader], taken_at = p_now,
            taken_by = coalesce(p_taken_by[v_reader], ''), progress = NULL, process = p_process, holder = p_holders[v_reader]
        WHERE CURRENT OF v_next
        RETURNING j.job_id, j.token, j.job_type, j.job_key, j.level, j.attempts, j.pushed_at, j.pushed_by, j.due_at, j.last_error,
            j.body
        INTO job_id, token, job_type, job_key, level, attempt, pushed_at, pushed_by, lease_until, last_error, body;
        item := v_reader - 1;
        queue := q.name;
        notices := CASE v_place WHEN 1 THEN p_notices END;
        RETURN NEXT;
    END LOOP;
    CLOSE v_next;
END $$;
