-- The order in which the jobs of a work queue are taken.
-- Takes, Gives, Errors, Locks: see each function

-- 10 minus the level in a queue that looks at levels; -1 in one of ORDER = FIFO_STRICT, whose index has these jobs only; else 0.
CREATE OR REPLACE FUNCTION dialoq.job_rank(p_work_order text, p_level integer) RETURNS smallint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_work_order WHEN 'PRIORITY' THEN 10 - p_level WHEN 'FIFO_STRICT' THEN -1 ELSE 0 END::smallint
$$;

-- The job's place within its rank.
CREATE OR REPLACE FUNCTION dialoq.job_place(p_work_order text, p_job_id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_work_order WHEN 'LIFO' THEN -p_job_id ELSE p_job_id END
$$;

-- When a job that is pushed now is due: after a delay, or at a time in microseconds since 1970; NULL is now.
CREATE OR REPLACE FUNCTION dialoq.job_due(p_now timestamptz, p_delay_ms bigint, p_due_us bigint) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_due timestamptz;
BEGIN
    IF p_delay_ms IS NOT NULL THEN
        v_due := p_now + p_delay_ms * interval '1 millisecond';
    ELSIF p_due_us IS NOT NULL THEN
        -- The last time that every language can name.
        v_due := timestamptz '1970-01-01 00:00:00+00'
            + least(greatest(p_due_us, 0), 253402300799999999) / 1000000 * interval '1 second'
            + least(greatest(p_due_us, 0), 253402300799999999) % 1000000 * interval '1 microsecond';
    END IF;
    RETURN CASE WHEN v_due > p_now THEN v_due END;
END $$;

-- The next job of a queue that may be taken as far as this can see.
-- Takes: the queue; the type (NULL: any); the ranks; whether only age counts; keys whose jobs are held back, and whether jobs
--     without a key are; the place after which to look, so that a take of many jobs does not read again what it has taken
-- Gives: the job, its key and its place; NULL if there is none
CREATE OR REPLACE FUNCTION dialoq.next_job(
    q dialoq.work_queue, p_job_type text, p_from integer, p_to integer, p_oldest boolean, p_blocked text[], p_is_keyless_blocked boolean,
    p_past_rank integer, p_past_order bigint, OUT job_id bigint, OUT job_key text, OUT rank integer, OUT take_order bigint)
LANGUAGE plpgsql AS $$
DECLARE
    n record;
BEGIN
    IF NOT p_oldest THEN
        SELECT * INTO n
        FROM dialoq.next_job_of_ranks(q, p_job_type, p_from, p_to, p_blocked, p_is_keyless_blocked, p_past_rank, p_past_order);
        job_id := n.job_id;
        job_key := n.job_key;
        rank := n.rank;
        take_order := n.take_order;
    ELSIF q.are_jobs_marked AND cardinality(p_blocked) > 0 THEN
        FOR i IN p_from..p_to LOOP
            SELECT * INTO n
            FROM dialoq.next_job_of_ranks(q, p_job_type, i, i, p_blocked, p_is_keyless_blocked, i, p_past_order);
            CONTINUE WHEN n.job_id IS NULL OR n.take_order > next_job.take_order;
            job_id := n.job_id;
            job_key := n.job_key;
            rank := n.rank;
            take_order := n.take_order;
        END LOOP;
    ELSE
        -- The oldest of the first jobs of each rank.
        SELECT f.job_id, f.job_key, k.rank, f.take_order INTO next_job.job_id, next_job.job_key, next_job.rank, next_job.take_order
        FROM generate_series(p_from, p_to) AS k (rank)
        CROSS JOIN LATERAL (
            SELECT j.job_id, j.job_key, j.take_order FROM dialoq.job AS j
            WHERE j.queue_id = q.queue_id AND j.state = 1 AND j.rank_from_top = k.rank AND j.take_order > p_past_order
                AND (p_job_type IS NULL OR j.job_type = p_job_type)
                AND CASE WHEN j.job_key IS NULL THEN NOT p_is_keyless_blocked ELSE j.job_key NOT IN (SELECT unnest(p_blocked)) END
            ORDER BY j.rank_from_top, j.take_order LIMIT 1) AS f
        ORDER BY f.take_order LIMIT 1;
    END IF;
END $$;

-- The first job of some ranks that may be taken. If a key has many ready jobs and as many are taken as its limit allows, a search in
-- the order of the queue reads over them: beside 232,000 such jobs each take lasted 70 ms, and the takes of a queue with limits come one
-- after the other. So after 5,000 jobs, which cost 1.5 ms, the first job of each key is asked for, if there are fewer than 500 keys,
-- which cost 8 ms at most. When 200 jobs were read at first, keys with blocks of 300 jobs made a take of 400 last for seconds.
-- Takes, Gives: as next_job
CREATE OR REPLACE FUNCTION dialoq.next_job_of_ranks(
    q dialoq.work_queue, p_job_type text, p_from integer, p_to integer, p_blocked text[], p_is_keyless_blocked boolean,
    p_past_rank integer, p_past_order bigint, OUT job_id bigint, OUT job_key text, OUT rank integer, OUT take_order bigint)
LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    SELECT * INTO f
    FROM dialoq.scan_jobs(q.queue_id, p_job_type, p_from, p_to, p_blocked, p_is_keyless_blocked, p_past_rank, p_past_order,
        CASE WHEN q.are_jobs_marked AND cardinality(p_blocked) > 0 THEN 5000 END);
    IF f.is_cut THEN
        SELECT * INTO f
        FROM dialoq.first_job_of_keys(q.queue_id, p_job_type, p_from, p_to, p_blocked, p_is_keyless_blocked, p_past_rank, p_past_order,
            500);
        IF f.is_cut THEN
            SELECT * INTO f
            FROM dialoq.scan_jobs(q.queue_id, p_job_type, p_from, p_to, p_blocked, p_is_keyless_blocked, p_past_rank, p_past_order, NULL);
        END IF;
    END IF;
    job_id := f.job_id;
    job_key := f.job_key;
    rank := f.rank;
    take_order := f.take_order;
END $$;

-- Reads ready jobs in the order of their queue.
-- Takes: as next_job; how many are read at most (NULL: all)
-- Gives: the first that may be taken, its key and its place; if there is none, whether others were left unread
CREATE OR REPLACE FUNCTION dialoq.scan_jobs(
    p_queue_id integer, p_job_type text, p_from integer, p_to integer, p_blocked text[], p_is_keyless_blocked boolean,
    p_past_rank integer, p_past_order bigint, p_top integer,
    OUT job_id bigint, OUT job_key text, OUT rank integer, OUT take_order bigint, OUT is_cut boolean)
LANGUAGE plpgsql AS $$
BEGIN
    IF p_job_type IS NULL THEN
        SELECT f.job_id, f.job_key, f.rank_from_top, f.take_order
        INTO scan_jobs.job_id, scan_jobs.job_key, scan_jobs.rank, scan_jobs.take_order
        FROM (
            SELECT j.job_id, j.job_key, j.rank_from_top, j.take_order FROM dialoq.job AS j
            WHERE j.queue_id = p_queue_id AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
                AND (j.rank_from_top, j.take_order) > (p_past_rank, p_past_order)
            ORDER BY j.rank_from_top, j.take_order LIMIT p_top) AS f
        WHERE CASE WHEN f.job_key IS NULL THEN NOT p_is_keyless_blocked ELSE f.job_key NOT IN (SELECT unnest(p_blocked)) END
        LIMIT 1;
        is_cut := p_top IS NOT NULL AND scan_jobs.job_id IS NULL AND EXISTS (
            SELECT FROM dialoq.job AS j
            WHERE j.queue_id = p_queue_id AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
                AND (j.rank_from_top, j.take_order) > (p_past_rank, p_past_order)
            ORDER BY j.rank_from_top, j.take_order OFFSET p_top LIMIT 1);
    ELSE
        SELECT f.job_id, f.job_key, f.rank_from_top, f.take_order
        INTO scan_jobs.job_id, scan_jobs.job_key, scan_jobs.rank, scan_jobs.take_order
        FROM (
            SELECT j.job_id, j.job_key, j.rank_from_top, j.take_order FROM dialoq.job AS j
            WHERE j.queue_id = p_queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
                AND (j.rank_from_top, j.take_order) > (p_past_rank, p_past_order)
            ORDER BY j.rank_from_top, j.take_order LIMIT p_top) AS f
        WHERE CASE WHEN f.job_key IS NULL THEN NOT p_is_keyless_blocked ELSE f.job_key NOT IN (SELECT unnest(p_blocked)) END
        LIMIT 1;
        is_cut := p_top IS NOT NULL AND scan_jobs.job_id IS NULL AND EXISTS (
            SELECT FROM dialoq.job AS j
            WHERE j.queue_id = p_queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
                AND (j.rank_from_top, j.take_order) > (p_past_rank, p_past_order)
            ORDER BY j.rank_from_top, j.take_order OFFSET p_top LIMIT 1);
    END IF;
END $$;

-- Reads the first ready job of each key of a queue whose jobs are marked, see mark_jobs; if a type is asked for, the first 20, and 200
-- of those without a key. A key is asked for by a comparison of rows in the order of job_of_key: with equal columns the planner may
-- choose job_ready, which has their order too, and read the jobs of all keys.
-- Takes: as next_job; how many keys are read at most
-- Gives: the first that may be taken, its key and its place; whether keys or jobs were left unread, so that it may be another
CREATE OR REPLACE FUNCTION dialoq.first_job_of_keys(
    p_queue_id integer, p_job_type text, p_from integer, p_to integer, p_blocked text[], p_is_keyless_blocked boolean,
    p_past_rank integer, p_past_order bigint, p_top integer,
    OUT job_id bigint, OUT job_key text, OUT rank integer, OUT take_order bigint, OUT is_cut boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_rank integer := greatest(p_from, p_past_rank);
    v_order bigint := CASE WHEN p_past_rank >= p_from THEN p_past_order ELSE -9223372036854775808 END;
    v_keys integer;
BEGIN
    -- Of a type the first 20 jobs of a key are looked at; the 20th stands for those behind it, which come after it.
    WITH RECURSIVE head AS (
        (SELECT j.job_key FROM dialoq.job AS j
        WHERE j.queue_id = p_queue_id AND j.job_key IS NOT NULL AND j.state = 1 AND j.has_key_limit
        ORDER BY j.queue_id, j.job_key, j.rank_from_top, j.take_order LIMIT 1)
        UNION ALL
        SELECT n.job_key
        FROM head AS b
        CROSS JOIN LATERAL (
            SELECT j.job_key FROM dialoq.job AS j
            WHERE j.queue_id = p_queue_id AND j.job_key > b.job_key AND j.state = 1 AND j.has_key_limit
            ORDER BY j.queue_id, j.job_key, j.rank_from_top, j.take_order LIMIT 1) AS n
    ), key AS MATERIALIZED (
        SELECT b.job_key FROM head AS b LIMIT p_top
    ), free AS (
        SELECT c.*
        FROM key AS k
        CROSS JOIN LATERAL (
            SELECT o.job_id, o.job_key, o.rank_from_top, o.take_order, (o.job_type = p_job_type) IS FALSE AS is_cut
            FROM (
                SELECT i.*, row_number() OVER () AS place
                FROM (
                    SELECT j.job_id, j.job_key, j.job_type, j.rank_from_top, j.take_order FROM dialoq.job AS j
                    WHERE j.queue_id = p_queue_id AND j.state = 1 AND j.has_key_limit
                        AND (j.job_key, j.rank_from_top, j.take_order) > (k.job_key, v_rank, v_order) AND j.job_key <= k.job_key
                    ORDER BY j.queue_id, j.job_key, j.rank_from_top, j.take_order
                    LIMIT CASE WHEN p_job_type IS NULL THEN 1 ELSE 20 END) AS i) AS o
            WHERE o.rank_from_top <= p_to AND (p_job_type IS NULL OR o.job_type = p_job_type OR o.place = 20)
            ORDER BY o.place LIMIT 1) AS c
        WHERE k.job_key NOT IN (SELECT unnest(p_blocked))
        UNION ALL
        (SELECT o.job_id, NULL, o.rank_from_top, o.take_order, (o.job_type = p_job_type) IS FALSE
        FROM (
            SELECT i.*, row_number() OVER () AS place
            FROM (
                SELECT j.job_id, j.job_type, j.rank_from_top, j.take_order FROM dialoq.job AS j
                WHERE NOT p_is_keyless_blocked AND j.queue_id = p_queue_id AND j.job_key IS NULL AND j.state = 1 AND j.has_key_limit
                    AND (j.rank_from_top, j.take_order) > (v_rank, v_order)
                ORDER BY j.queue_id, j.job_key, j.rank_from_top, j.take_order
                LIMIT CASE WHEN p_job_type IS NULL THEN 1 ELSE 200 END) AS i) AS o
        WHERE o.rank_from_top <= p_to AND (p_job_type IS NULL OR o.job_type = p_job_type OR o.place = 200)
        ORDER BY o.place LIMIT 1)
    )
    SELECT t.keys, r.job_id, r.job_key, r.rank_from_top, r.take_order, r.is_cut
    INTO v_keys, first_job_of_keys.job_id, first_job_of_keys.job_key, first_job_of_keys.rank, first_job_of_keys.take_order, is_cut
    FROM (SELECT count(*) AS keys FROM key) AS t
    LEFT JOIN LATERAL (SELECT * FROM free AS e ORDER BY e.rank_from_top, e.take_order LIMIT 1) AS r ON true;
    is_cut := v_keys >= p_top OR coalesce(is_cut, false);
END $$;

-- The next job of a queue of ORDER = FIFO_STRICT. The caller holds lock_limits, so that no other take has changed what
-- is read here.
-- Takes: the queue, and the rest as next_job; keys that this take has met, of each the place of its last job that was met, and how far
--     behind that one a job may stand; the time
-- Gives: the job, its key and its place, and how many ready jobs of its key stand between it and the last one that was met; NULL if
--     there is none
CREATE OR REPLACE FUNCTION dialoq.next_strict_job(
    q dialoq.work_queue, p_job_type text, p_blocked text[], p_is_keyless_blocked boolean, p_past_order bigint, p_keys text[],
    p_lasts bigint[], p_rooms bigint[], p_now timestamptz,
    OUT job_id bigint, OUT job_key text, OUT take_order bigint, OUT before bigint)
LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    SELECT * INTO f
    FROM dialoq.scan_strict_jobs(q, p_job_type, p_blocked, p_is_keyless_blocked, p_past_order, p_keys, p_lasts, p_rooms, p_now,
        200);
    IF f.job_id IS NULL AND f.ready = 200 THEN
        -- Many jobs of few keys are held back, or many keys: the first jobs of the keys are fewer, or all jobs are read.
        SELECT s.job_id, s.job_key, s.take_order, s.before, s.heads INTO f
        FROM dialoq.first_strict_job(q, p_job_type, p_blocked, p_is_keyless_blocked, p_keys, p_lasts, p_rooms, p_now, 1000) AS s;
        IF f.heads = 1000 THEN
            SELECT * INTO f
            FROM dialoq.scan_strict_jobs(q, p_job_type, p_blocked, p_is_keyless_blocked, p_past_order, p_keys, p_lasts, p_rooms, p_now,
                NULL);
        END IF;
    END IF;
    job_id := f.job_id;
    job_key := f.job_key;
    take_order := f.take_order;
    before := f.before;
END $$;

-- Reads ready jobs of such a queue in their order. The first job of a key is asked for in the order of job_strict, because no other
-- index has that order: with a condition alone the planner may choose one whose entries of taken jobs are read too.
-- A job of the type that is asked for may stand behind ready jobs of other types, if fewer of its key do than may be taken now.
-- Takes: as next_strict_job; how many are read at most (NULL: all)
-- Gives: the first that may be taken, its key and its place; if there is none, how many were read
CREATE OR REPLACE FUNCTION dialoq.scan_strict_jobs(
    q dialoq.work_queue, p_job_type text, p_blocked text[], p_is_keyless_blocked boolean, p_past_order bigint, p_keys text[],
    p_lasts bigint[], p_rooms bigint[], p_now timestamptz, p_top integer,
    OUT job_id bigint, OUT job_key text, OUT take_order bigint, OUT before bigint, OUT ready bigint)
LANGUAGE plpgsql AS $$
BEGIN
    IF p_job_type IS NULL THEN
        before := 0;
        SELECT f.job_id, f.job_key, f.take_order INTO scan_strict_jobs.job_id, scan_strict_jobs.job_key, scan_strict_jobs.take_order
        FROM (
            SELECT j.job_id, j.job_key, j.take_order FROM dialoq.job AS j
            WHERE j.queue_id = q.queue_id AND j.state = 1 AND j.rank_from_top = -1 AND j.take_order > p_past_order
            ORDER BY j.rank_from_top, j.take_order LIMIT p_top) AS f
        WHERE CASE
            WHEN f.job_key IS NULL THEN NOT p_is_keyless_blocked AND f.take_order = (
                SELECT e.take_order FROM dialoq.job AS e
                WHERE e.queue_id = q.queue_id AND e.job_key IS NULL AND e.state = 1 AND e.rank_from_top = -1
                ORDER BY e.queue_id, e.job_key, e.take_order LIMIT 1)
            ELSE f.job_key NOT IN (SELECT unnest(p_blocked)) AND f.take_order = (
                -- What this take has taken before is still in the index, so the search begins behind it.
                SELECT e.take_order FROM dialoq.job AS e
                WHERE e.queue_id = q.queue_id AND e.state = 1 AND e.rank_from_top = -1
                    AND (e.job_key, e.take_order) > (f.job_key, coalesce(p_lasts[array_position(p_keys, f.job_key)], 0))
                ORDER BY e.queue_id, e.job_key, e.take_order LIMIT 1)
            END
        LIMIT 1;
        IF scan_strict_jobs.job_id IS NULL THEN
            SELECT count(*) INTO ready
            FROM (
                SELECT FROM dialoq.job AS j
                WHERE j.queue_id = q.queue_id AND j.state = 1 AND j.rank_from_top = -1 AND j.take_order > p_past_order
                ORDER BY j.rank_from_top, j.take_order LIMIT p_top) AS f;
        END IF;
        RETURN;
    END IF;
    SELECT f.job_id, f.job_key, f.take_order, d.before
    INTO scan_strict_jobs.job_id, scan_strict_jobs.job_key, scan_strict_jobs.take_order, scan_strict_jobs.before
    FROM (
        SELECT j.job_id, j.job_key, j.take_order FROM dialoq.job AS j
        WHERE j.queue_id = q.queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top = -1
            AND j.take_order > p_past_order
        ORDER BY j.rank_from_top, j.take_order LIMIT p_top) AS f
    -- NULL: the job may not be taken.
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN f.job_key IS NULL THEN CASE WHEN NOT p_is_keyless_blocked AND f.take_order = (
                SELECT e.take_order FROM dialoq.job AS e
                WHERE e.queue_id = q.queue_id AND e.job_key IS NULL AND e.state = 1 AND e.rank_from_top = -1
                ORDER BY e.queue_id, e.job_key, e.take_order LIMIT 1) THEN 0 END
            WHEN f.job_key IN (SELECT unnest(p_blocked)) THEN NULL
            ELSE (
                SELECT nullif(count(*), r.room) FROM (
                    SELECT FROM dialoq.job AS e
                    WHERE e.queue_id = q.queue_id AND e.state = 1 AND e.rank_from_top = -1
                        AND (e.job_key, e.take_order) > (f.job_key, coalesce(p_lasts[array_position(p_keys, f.job_key)], 0))
                        AND (e.job_key, e.take_order) < (f.job_key, f.take_order)
                    ORDER BY e.queue_id, e.job_key, e.take_order LIMIT r.room) AS b)
            END AS before
        FROM (
            SELECT CASE
                WHEN q.max_taken_per_key < 2 THEN 1
                WHEN f.job_key IS NULL OR f.job_key IN (SELECT unnest(p_blocked)) THEN 0
                ELSE greatest(coalesce(p_rooms[array_position(p_keys, f.job_key)], dialoq.room_of_key(q, f.job_key, p_now)), 0)
                END AS room
            OFFSET 0) AS r
        OFFSET 0) AS d
    WHERE d.before IS NOT NULL
    LIMIT 1;
    IF scan_strict_jobs.job_id IS NULL THEN
        SELECT count(*) INTO ready
        FROM (
            SELECT FROM dialoq.job AS j
            WHERE j.queue_id = q.queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top = -1
                AND j.take_order > p_past_order
            ORDER BY j.rank_from_top, j.take_order LIMIT p_top) AS f;
    END IF;
END $$;

-- Reads the first ready job of each key of such a queue, and if it is of another type than the one that is asked for, those behind it
-- that may be taken too.
-- Takes: as next_strict_job, but the place; how many keys are read at most
-- Gives: the first that may be taken, its key and its place; how many keys were read
CREATE OR REPLACE FUNCTION dialoq.first_strict_job(
    q dialoq.work_queue, p_job_type text, p_blocked text[], p_is_keyless_blocked boolean, p_keys text[], p_lasts bigint[],
    p_rooms bigint[], p_now timestamptz, p_top integer,
    OUT job_id bigint, OUT job_key text, OUT take_order bigint, OUT before bigint, OUT heads integer)
LANGUAGE plpgsql AS $$
DECLARE
    h record;
    v_room bigint;
    v_before bigint;
BEGIN
    heads := 0;
    FOR h IN
        WITH RECURSIVE head AS (
            (SELECT j.job_id, j.job_key, j.job_type, j.take_order FROM dialoq.job AS j
            WHERE j.queue_id = q.queue_id AND j.job_key IS NOT NULL AND j.state = 1 AND j.rank_from_top = -1
            ORDER BY j.queue_id, j.job_key, j.take_order LIMIT 1)
            UNION ALL
            SELECT n.job_id, n.job_key, n.job_type, n.take_order
            FROM head AS b
            CROSS JOIN LATERAL (
                SELECT j.job_id, j.job_key, j.job_type, j.take_order FROM dialoq.job AS j
                WHERE j.queue_id = q.queue_id AND j.job_key > b.job_key AND j.state = 1 AND j.rank_from_top = -1
                ORDER BY j.queue_id, j.job_key, j.take_order LIMIT 1) AS n
        )
        SELECT k.job_id, k.job_key, k.job_type, k.take_order FROM head AS k LIMIT p_top
    LOOP
        heads := heads + 1;
        CONTINUE WHEN h.take_order > first_strict_job.take_order OR h.job_key = ANY (p_blocked);
        v_before := 0;
        IF h.job_type <> p_job_type THEN
            CONTINUE WHEN q.max_taken_per_key < 2;
            v_room := coalesce(p_rooms[array_position(p_keys, h.job_key)], dialoq.room_of_key(q, h.job_key, p_now));
            CONTINUE WHEN v_room < 1;
            SELECT b.job_id, b.job_key, b.take_order, b.place - 1 AS before INTO h
            FROM (
                SELECT j.job_id, j.job_key, j.job_type, j.take_order, row_number() OVER () AS place
                FROM (
                    SELECT * FROM dialoq.job AS j
                    WHERE j.queue_id = q.queue_id AND j.state = 1 AND j.rank_from_top = -1
                        AND (j.job_key, j.take_order) > (h.job_key, coalesce(p_lasts[array_position(p_keys, h.job_key)], 0))
                        AND j.job_key <= h.job_key
                    ORDER BY j.queue_id, j.job_key, j.take_order LIMIT v_room) AS j) AS b
            WHERE b.job_type = p_job_type
            ORDER BY b.place LIMIT 1;
            CONTINUE WHEN NOT FOUND OR h.take_order > first_strict_job.take_order;
            v_before := h.before;
        END IF;
        before := v_before;
        job_id := h.job_id;
        job_key := h.job_key;
        take_order := h.take_order;
    END LOOP;
    IF NOT p_is_keyless_blocked THEN
        SELECT j.job_id, j.job_type, j.take_order INTO h
        FROM dialoq.job AS j
        WHERE j.queue_id = q.queue_id AND j.job_key IS NULL AND j.state = 1 AND j.rank_from_top = -1
        ORDER BY j.queue_id, j.job_key, j.take_order LIMIT 1;
        IF FOUND AND (first_strict_job.take_order IS NULL OR h.take_order < first_strict_job.take_order)
            AND (p_job_type IS NULL OR h.job_type = p_job_type)
        THEN
            job_id := h.job_id;
            job_key := NULL;
            take_order := h.take_order;
            before := 0;
        END IF;
    END IF;
END $$;
