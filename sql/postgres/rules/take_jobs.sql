-- TAKE: jobs that are ready, to a reader.
-- Takes, Gives, Errors, Locks: see each function

-- Takes jobs for one reader, or for several that asked at the same moment: the readers are served in their order.
-- Takes: the queue; the type, the levels and whether only age counts, as take_jobs; of each reader the count, whether its jobs
--     are leased, the length of the lease, the name; the process and, of each reader, the transaction that hold the jobs
--     (NULL: a lease, or none); notices of what the caller has done before; p_is_kept and p_among: see lock_ready_jobs;
--     p_from_order: in a queue of ORDER = FIFO or UNORDERED without limits the take_order at which the search begins, NULL: at the
--     first; if it finds too few jobs, it is made again from the first
-- Gives: the jobs in the order of their queue, each with the place of its reader from 0, notices in the first; one row with
--     notices only, for a client of Dialoq, if there are notices and no job
-- Errors: 60002, 60005, 60043
-- Locks: the jobs, passing over those that others hold; in a queue with limits, lock_limits
CREATE OR REPLACE FUNCTION dialoq.take_ready_jobs(
    p_queue text, p_job_type text, p_lowest integer, p_highest integer, p_oldest boolean, p_job_counts bigint[],
    p_have_leases boolean[], p_leases_ms bigint[], p_taken_by text[], p_process uuid, p_holders uuid[], p_notices text,
    p_is_kept boolean DEFAULT false, p_among bigint[] DEFAULT NULL, p_from_order bigint DEFAULT NULL)
RETURNS TABLE (
    item integer, job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    q dialoq.work_queue;
    v_now timestamptz;
    v_from integer := 0;
    v_to integer := 0;
    v_count bigint;
    v_rows tid[];
    v_items integer[];
    v_untils timestamptz[];
    v_until timestamptz;
    v_notices text := p_notices;
    v_ahead bigint;
    v_is_plain boolean;
    v_is_there boolean := true;
    v_readers integer := cardinality(p_job_counts);
    v_are_alike boolean;
BEGIN
    IF NOT dialoq.is_read_committed() THEN
        PERFORM dialoq.check_isolation();
    END IF;
    SELECT * INTO q FROM dialoq.work_queue AS w WHERE w.folded_name = lower(p_queue COLLATE "C");
    IF NOT FOUND THEN
        PERFORM dialoq.fail(60002, format('work queue ''%s'' was not found', p_queue));
    END IF;
    -- Each check costs a statement, and nearly every take is one of these.
    v_are_alike := v_readers = 1 OR p_job_counts = array_fill(p_job_counts[1], ARRAY[v_readers])
        AND p_have_leases = array_fill(p_have_leases[1], ARRAY[v_readers])
        AND p_leases_ms = array_fill(p_leases_ms[1], ARRAY[v_readers]) AND p_taken_by = array_fill(p_taken_by[1], ARRAY[v_readers]);
    IF (v_are_alike AND p_job_counts[1] BETWEEN 1 AND 10000 AND p_leases_ms[1] IS NULL AND p_lowest IS NULL AND p_highest IS NULL
        AND p_oldest IS NOT TRUE AND (octet_length(p_taken_by[1]) > 128 OR octet_length(p_job_type) > 128) IS NOT TRUE) IS NOT TRUE
    THEN
        FOR i IN 1..v_readers LOOP
            -- The same as for the reader before is right again.
            CONTINUE WHEN i > 1 AND p_job_counts[i] = p_job_counts[i - 1] AND p_have_leases[i] = p_have_leases[i - 1]
                AND p_leases_ms[i] IS NOT DISTINCT FROM p_leases_ms[i - 1] AND octet_length(p_taken_by[i]) <= 128;
            PERFORM dialoq.check_take(q, p_job_counts[i], p_job_type, p_lowest, p_highest, p_oldest, p_have_leases[i], p_leases_ms[i],
                p_taken_by[i]);
        END LOOP;
    END IF;
    -- Neither limits, nor jobs of several ranks, nor a transaction that stays open.
    v_is_plain := q.is_enabled AND NOT (dialoq.is_limited(q) OR p_oldest IS TRUE OR p_is_kept);
    IF q.work_order = 'PRIORITY' THEN
        v_from := 10 - coalesce(p_highest, 10);
        v_to := 10 - coalesce(p_lowest, 1);
    ELSIF q.work_order = 'FIFO_STRICT' THEN
        v_from := -1;
        v_to := -1;
    END IF;
    -- Before the time is read, which may be seconds later after a wait: a rate is asked what it lets go now, and leases begin now.
    IF q.take_by = 'APPLOCK' AND v_is_plain THEN
        PERFORM dialoq.line_up(q.queue_id);
    ELSIF q.is_enabled AND dialoq.is_limited(q) THEN
        v_is_there := dialoq.lock_limits(q.queue_id, v_from, v_to);
        -- The wait may have lasted as long as its line moves: the queue is taken from as it is now.
        SELECT * INTO q FROM dialoq.work_queue AS w WHERE w.queue_id = q.queue_id;
        v_is_there := v_is_there AND FOUND;
    END IF;
    -- As current_time_utc.
    SELECT coalesce(b.manual_now, clock_timestamp()),
        (SELECT r.mark FROM dialoq.job_token_run AS r LIMIT 1) - (SELECT s.last_value FROM dialoq.next_job_token AS s)
    INTO v_now, v_ahead FROM dialoq.broker AS b;
    IF (v_ahead > 1000000) IS NOT TRUE THEN
        PERFORM dialoq.reserve_tokens();
    END IF;
    -- In all; by reader the end of its leases. Without a FROM they are expressions, which cost the server nothing.
    IF v_are_alike THEN
        v_count := v_readers * p_job_counts[1];
        v_until := CASE WHEN p_have_leases[1] THEN v_now + coalesce(p_leases_ms[1], q.lease_ms) * interval '1 millisecond' END;
        v_untils := array_fill(v_until, ARRAY[v_readers]);
    ELSE
        SELECT sum(c.n) INTO v_count FROM unnest(p_job_counts) AS c (n);
        v_untils := ARRAY(
            SELECT CASE WHEN l.has_lease THEN v_now + coalesce(l.ms, q.lease_ms) * interval '1 millisecond' END
            FROM unnest(p_have_leases, p_leases_ms) WITH ORDINALITY AS l (has_lease, ms, place) ORDER BY l.place);
        SELECT min(l.until) INTO v_until FROM unnest(v_untils) AS l (until);
    END IF;
    IF NOT q.is_enabled OR NOT v_is_there THEN
        v_rows := '{}';
    ELSIF v_is_plain AND q.take_by IN ('CTE', 'CURSOR') AND (v_until IS NOT NULL OR p_holders IS NOT NULL) THEN
        -- Every process looks for what is due once a minute.
        IF v_until < v_now + interval '1 minute' THEN
            v_notices := dialoq.distinct_notices(concat_ws(' ', v_notices, dialoq.due_notice(v_until)));
        END IF;
        IF q.take_by = 'CTE' THEN
            RETURN QUERY SELECT * FROM dialoq.take_by_cte(q, p_job_type, v_from, v_to, p_job_counts, v_count, v_untils, p_taken_by,
                p_process, p_holders, v_notices, v_now);
        ELSE
            RETURN QUERY SELECT * FROM dialoq.take_by_cursor(q, p_job_type, v_from, v_to, p_job_counts, v_count, v_untils, p_taken_by,
                p_process, p_holders, v_notices, v_now);
        END IF;
        IF FOUND THEN
            PERFORM dialoq.publish_notices(v_notices);
            RETURN;
        END IF;
        v_notices := p_notices;
        v_rows := '{}';
    ELSIF dialoq.is_limited(q) OR p_oldest IS TRUE THEN
        SELECT t.rows, concat_ws(' ', v_notices, t.notices) INTO v_rows, v_notices
        FROM dialoq.take_one_by_one(q, v_count, p_job_type, v_from, v_to, p_oldest IS TRUE, v_now) AS t;
    ELSIF p_is_kept THEN
        v_rows := dialoq.lock_ready_jobs(q.queue_id, p_job_type, v_from, v_to, v_count, p_among);
    ELSE
        IF p_from_order IS NOT NULL AND q.work_order IN ('FIFO', 'UNORDERED') THEN
            IF p_job_type IS NULL THEN
                v_rows := ARRAY(
                    SELECT j.ctid FROM dialoq.job AS j
                    WHERE j.queue_id = q.queue_id AND j.state = 1 AND j.rank_from_top = 0 AND j.take_order >= p_from_order
                    ORDER BY j.take_order LIMIT v_count FOR UPDATE SKIP LOCKED);
            ELSE
                v_rows := ARRAY(
                    SELECT j.ctid FROM dialoq.job AS j
                    WHERE j.queue_id = q.queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top = 0
                        AND j.take_order >= p_from_order
                    ORDER BY j.take_order LIMIT v_count FOR UPDATE SKIP LOCKED);
            END IF;
        END IF;
        IF v_rows IS NOT NULL AND cardinality(v_rows) = v_count THEN
            NULL;
        ELSIF p_job_type IS NULL THEN
            v_rows := ARRAY(
                SELECT j.ctid FROM dialoq.job AS j
                WHERE j.queue_id = q.queue_id AND j.state = 1 AND j.rank_from_top BETWEEN v_from AND v_to
                ORDER BY j.rank_from_top, j.take_order LIMIT v_count FOR UPDATE SKIP LOCKED);
        ELSE
            v_rows := ARRAY(
                SELECT j.ctid FROM dialoq.job AS j
                WHERE j.queue_id = q.queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top BETWEEN v_from AND v_to
                ORDER BY j.rank_from_top, j.take_order LIMIT v_count FOR UPDATE SKIP LOCKED);
        END IF;
    END IF;
    IF cardinality(v_rows) = 0 THEN
        IF dialoq.publish_notices(v_notices) IS NOT NULL AND dialoq.is_client_call() THEN
            notices := v_notices;
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;
    -- By job the reader. NULL: each gets one.
    IF v_readers = 1 THEN
        v_items := array_fill(1, ARRAY[cardinality(v_rows)]);
    ELSIF v_count > v_readers THEN
        v_items := ARRAY(
            SELECT c.place::integer FROM unnest(p_job_counts) WITH ORDINALITY AS c (n, place), generate_series(1, c.n)
            ORDER BY c.place LIMIT cardinality(v_rows));
    END IF;
    -- Every process looks for what is due once a minute.
    IF v_until < v_now + interval '1 minute' THEN
        v_notices := concat_ws(' ', v_notices, dialoq.due_notice(v_until));
    END IF;
    IF v_until IS NULL AND p_holders IS NULL THEN
        -- Without a lease and a holder the taking itself completes the jobs.
        v_notices := dialoq.publish_notices(concat_ws(' ', v_notices, CASE WHEN dialoq.is_limited(q) THEN 'q:' || q.queue_id::text END));
        RETURN QUERY SELECT * FROM dialoq.take_finally(q, v_rows, p_taken_by[1], v_notices, v_now);
        RETURN;
    END IF;
    v_notices := dialoq.publish_notices(v_notices);
    IF cardinality(v_rows) = 1 THEN
        RETURN QUERY
        UPDATE dialoq.job AS j
        SET state = 2, attempts = j.attempts + 1,
            token = nextval('dialoq.next_job_token'), due_at = v_untils[1], taken_at = v_now,
            taken_by = coalesce(p_taken_by[1], ''), progress = NULL, process = p_process, holder = p_holders[1]
        WHERE j.ctid = v_rows[1]
        RETURNING 0, j.job_id, j.token, q.name, j.job_type, j.job_key, j.level::integer, j.attempts, j.pushed_at,
            j.pushed_by, j.due_at, j.last_error, j.body, v_notices;
        RETURN;
    END IF;
    RETURN QUERY
    WITH taken AS (
        UPDATE dialoq.job AS j
        SET state = 2, attempts = j.attempts + 1,
            token = nextval('dialoq.next_job_token'), due_at = v_untils[d.item], taken_at = v_now,
            taken_by = coalesce(p_taken_by[d.item], ''), progress = NULL, process = p_process, holder = p_holders[d.item]
        FROM (
            SELECT r.row, r.place, coalesce(v_items[r.place], r.place::integer) AS item
            FROM unnest(v_rows) WITH ORDINALITY AS r (row, place)) AS d
        WHERE j.ctid = d.row
        RETURNING d.item, d.place, j.job_id, j.token, j.job_type, j.job_key, j.level, j.attempts, j.pushed_at, j.pushed_by,
            j.due_at, j.last_error, j.body
    )
    SELECT t.item - 1, t.job_id, t.token, q.name, t.job_type, t.job_key, t.level::integer, t.attempts, t.pushed_at, t.pushed_by,
        t.due_at, t.last_error, t.body, CASE t.place WHEN 1 THEN v_notices END
    FROM taken AS t
    ORDER BY t.place;
END $$;

-- Locks the next jobs of a queue without limits in a transaction that stays open. A row that another take has taken since this
-- statement began to read is locked and passed over, and its lock would keep its holder from reporting. So if a row was
-- passed over, this fails: the caller gives up the locks with a subtransaction, and asks again for the rows that were free.
-- The subtransaction also writes the rows: a row that one subtransaction locks and another one writes costs a MultiXact.
-- Takes: the queue; the type (NULL: any); the ranks; how many at most; the jobs that were free (NULL: any)
-- Gives: where the rows are, in the order of their queue
-- Errors: SBZZZ if a row was passed over; the jobs that were free are in its detail
CREATE OR REPLACE FUNCTION dialoq.lock_ready_jobs(
    p_queue_id integer, p_job_type text, p_from integer, p_to integer, p_count bigint, p_among bigint[]) RETURNS tid[]
LANGUAGE plpgsql AS $$
DECLARE
    v_first bigint[] := p_among;
    v_ids bigint[];
    v_rows tid[];
BEGIN
    -- Both parts read one snapshot: if the locked rows are the first ones, none was passed over.
    IF p_among IS NOT NULL THEN
        SELECT coalesce(array_agg(k.job_id ORDER BY k.place), '{}'), coalesce(array_agg(k.ctid ORDER BY k.place), '{}')
        INTO v_ids, v_rows
        FROM (
            SELECT f.place, j.job_id, j.ctid
            FROM unnest(p_among) WITH ORDINALITY AS f (id, place)
            -- In a form that names no partial index, as complete_job.
            JOIN dialoq.job AS j ON j.job_id = f.id AND j.state::integer = 1
            FOR UPDATE OF j SKIP LOCKED) AS k;
    ELSIF p_job_type IS NULL THEN
        SELECT ARRAY(
                SELECT j.job_id FROM dialoq.job AS j
                WHERE j.queue_id = p_queue_id AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
                ORDER BY j.rank_from_top, j.take_order LIMIT p_count), l.ids, l.rows
        INTO v_first, v_ids, v_rows
        FROM (
            SELECT coalesce(array_agg(k.job_id), '{}') AS ids, coalesce(array_agg(k.ctid), '{}') AS rows
            FROM (
                SELECT j.job_id, j.ctid FROM dialoq.job AS j
                WHERE j.queue_id = p_queue_id AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
                ORDER BY j.rank_from_top, j.take_order LIMIT p_count FOR UPDATE SKIP LOCKED) AS k) AS l;
    ELSE
        SELECT ARRAY(
                SELECT j.job_id FROM dialoq.job AS j
                WHERE j.queue_id = p_queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
                ORDER BY j.rank_from_top, j.take_order LIMIT p_count), l.ids, l.rows
        INTO v_first, v_ids, v_rows
        FROM (
            SELECT coalesce(array_agg(k.job_id), '{}') AS ids, coalesce(array_agg(k.ctid), '{}') AS rows
            FROM (
                SELECT j.job_id, j.ctid FROM dialoq.job AS j
                WHERE j.queue_id = p_queue_id AND j.job_type = p_job_type AND j.state = 1 AND j.rank_from_top BETWEEN p_from AND p_to
                ORDER BY j.rank_from_top, j.take_order LIMIT p_count FOR UPDATE SKIP LOCKED) AS k) AS l;
    END IF;
    IF v_ids = v_first THEN
        RETURN v_rows;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'SBZZZ', DETAIL = v_ids::text;
END $$;

-- Takes jobs that are done with it: they leave the queue at once. The caller has locked the rows.
-- Takes: the queue, where the rows are, the reader, the notices
-- Gives: as take_ready_jobs
CREATE OR REPLACE FUNCTION dialoq.take_finally(
    q dialoq.work_queue, p_rows tid[], p_taken_by text, p_notices text, p_now timestamptz)
RETURNS TABLE (
    item integer, job_id bigint, token bigint, queue text, job_type text, job_key text, level integer, attempt integer,
    pushed_at timestamptz, pushed_by text, lease_until timestamptz, last_error text, body bytea, notices text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH gone AS (
        DELETE FROM dialoq.job AS j
        USING unnest(p_rows) WITH ORDINALITY AS r (row, place)
        WHERE j.ctid = r.row
        RETURNING r.place, nextval('dialoq.next_job_token') AS token, j.job_id, j.queue_id, j.level, j.attempts + 1 AS attempt,
            j.pushed_at, j.job_type, j.job_key, j.unique_key, j.pushed_by, j.last_error, j.body
    ), freed AS (
        -- <freed_names>
    ), kept AS (
        INSERT INTO dialoq.job_history (
            queue_id, job_id, finished_as, level, attempts, pushed_at, taken_at, finished_at, job_type, job_key, pushed_by,
            taken_by, last_error)
        SELECT q.queue_id, g.job_id, 4, g.level, g.attempt, g.pushed_at, p_now, p_now, g.job_type, g.job_key, g.pushed_by,
            coalesce(p_taken_by, ''), g.last_error
        FROM gone AS g
        WHERE q.has_history
    )
    SELECT 0, g.job_id, g.token, q.name, g.job_type, g.job_key, g.level::integer, g.attempt, g.pushed_at, g.pushed_by,
        NULL::timestamptz, g.last_error, g.body, CASE g.place WHEN 1 THEN p_notices END
    FROM gone AS g
    ORDER BY g.place;
END $$;

-- Takes the jobs of a queue with limits, or the oldest ones: after each job the next one is chosen anew. The jobs are marked
-- as taken, so that the limits count them; the caller writes the rest of their rows. Other sessions wait for the end of this, so its
-- time is in proportion to the jobs: a search goes on behind the job that was taken last, and the limits are read once. When each
-- search began at the first job and each job was counted again, a take of 5,000 jobs lasted 10 s, in which every other take of the
-- queue was refused. The caller holds lock_limits, and has read the time since.
-- Gives: where the rows of the jobs are, in the order of their queue; notices
CREATE OR REPLACE FUNCTION dialoq.take_one_by_one(
    q dialoq.work_queue, p_job_count bigint, p_job_type text, p_from integer, p_to integer, p_oldest boolean, p_now timestamptz,
    OUT rows tid[], OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_is_strict boolean := q.work_order = 'FIFO_STRICT';
    v_limits_keys boolean := v_is_strict OR q.max_taken_per_key + q.key_rate_jobs > 0;
    v_blocked text[] := '{}';
    v_is_keyless_blocked boolean := false;
    v_room bigint;
    v_rank integer := p_from - 1;
    v_order bigint := 0;
    v_taken bigint := 0;
    v_wake timestamptz;
    -- The first keys that were met, of each the last job that was met, how many more may be taken, and how many were. In a strict
    -- queue those that stand before it are no room for those behind it.
    v_keys text[] := '{}';
    v_lasts bigint[] := '{}';
    v_rooms bigint[] := '{}';
    v_counts bigint[] := '{}';
    v_place integer;
    v_key_room bigint;
    j record;
    v_row tid;
BEGIN
    rows := '{}';
    IF dialoq.is_limited(q) THEN
        v_room := dialoq.room_of_queue(q, p_now);
    END IF;
    v_room := least(p_job_count, v_room);
    IF v_limits_keys AND v_room > 0 THEN
        SELECT b.blocked, b.is_keyless_blocked INTO v_blocked, v_is_keyless_blocked FROM dialoq.blocked_keys(q, p_now) AS b;
    END IF;
    WHILE v_taken < v_room LOOP
        IF v_is_strict THEN
            SELECT n.job_id, n.job_key, NULL::integer AS rank, n.take_order, n.before INTO j
            FROM dialoq.next_strict_job(q, p_job_type, v_blocked, v_is_keyless_blocked, v_order, v_keys, v_lasts, v_rooms, p_now) AS n;
        ELSE
            SELECT n.*, 0::bigint AS before INTO j FROM dialoq.next_job(
                q, p_job_type, p_from, p_to, p_oldest, v_blocked, v_is_keyless_blocked, v_rank, v_order) AS n;
        END IF;
        EXIT WHEN j.job_id IS NULL;
        v_rank := j.rank;
        v_order := j.take_order;
        v_row := NULL;
        v_place := NULL;
        v_key_room := NULL;
        -- A job that is found has room, unless this take has used up the room of its key.
        IF v_limits_keys AND (v_room > 1 OR cardinality(v_keys) > 0) THEN
            v_place := array_position(v_keys, j.job_key);
            IF v_place IS NOT NULL THEN
                v_key_room := v_rooms[v_place];
            ELSE
                v_key_room := dialoq.room_of_key(q, j.job_key, p_now);
                IF cardinality(v_keys) < 1000 AND v_key_room > 0 THEN
                    v_keys := v_keys || j.job_key;
                    v_rooms := v_rooms || v_key_room;
                    v_lasts := v_lasts || 0::bigint;
                    v_counts := v_counts || 0::bigint;
                    v_place := cardinality(v_keys);
                END IF;
            END IF;
        END IF;
        IF (v_key_room <= 0) IS NOT TRUE THEN
            v_row := dialoq.mark_as_taken(j.job_id, p_oldest);
            -- A job whose row another session has locked has a place of its key in a strict queue, as one that is taken: that session
            -- may be a report that is refused and changes nothing, and where a key has one place, a later job would come before it.
            CONTINUE WHEN v_row IS NULL AND NOT (
                v_is_strict AND EXISTS (SELECT FROM dialoq.job AS f WHERE f.job_id = j.job_id AND f.state::integer = 1));
        END IF;
        IF v_row IS NOT NULL THEN
            v_taken := v_taken + 1;
            rows := rows || v_row;
            IF v_place IS NOT NULL THEN
                v_rooms[v_place] := v_key_room - 1 - j.before;
                v_lasts[v_place] := j.take_order;
                v_counts[v_place] := v_counts[v_place] + 1;
            ELSIF q.key_rate_jobs > 0 AND j.job_key IS NOT NULL THEN
                v_wake := least(v_wake, dialoq.count_rate(q.queue_id, true, j.job_key, q.key_rate_jobs, q.rate_ms, p_now, 1));
            END IF;
        ELSIF j.job_key IS NULL THEN
            v_is_keyless_blocked := true;
        ELSE
            IF v_place IS NULL AND q.max_taken_per_key > 1 AND cardinality(v_keys) < 1000 THEN
                v_key_room := dialoq.room_of_key(q, j.job_key, p_now);
                v_keys := v_keys || j.job_key;
                v_rooms := v_rooms || v_key_room;
                v_lasts := v_lasts || 0::bigint;
                v_counts := v_counts || 0::bigint;
                v_place := cardinality(v_keys);
            END IF;
            IF v_place IS NOT NULL THEN
                v_rooms[v_place] := v_key_room - 1 - j.before;
                v_lasts[v_place] := j.take_order;
            END IF;
            IF (v_rooms[v_place] > 0) IS NOT TRUE THEN
                v_blocked := v_blocked || j.job_key;
            END IF;
        END IF;
    END LOOP;
    IF q.rate_jobs > 0 AND v_taken > 0 THEN
        v_wake := least(v_wake, dialoq.count_rate(q.queue_id, false, '', q.rate_jobs, q.rate_ms, p_now, v_taken));
    END IF;
    IF q.key_rate_jobs > 0 AND cardinality(v_keys) > 0 THEN
        SELECT least(v_wake, min(dialoq.count_rate(q.queue_id, true, k.job_key, q.key_rate_jobs, q.rate_ms, p_now, k.taken))) INTO v_wake
        FROM unnest(v_keys, v_counts) AS k (job_key, taken)
        WHERE k.job_key IS NOT NULL AND k.taken > 0;
    END IF;
    IF v_wake IS NOT NULL THEN
        notices := dialoq.due_notice(v_wake);
    END IF;
END $$;

-- Marks a ready job as taken, for the limits.
-- Takes: the job; whether the queue may have no limits, so that other takes are under way: then a row that one of them has taken
--     must not stay locked
-- Gives: where its row is; NULL if another session has taken or locked it
CREATE OR REPLACE FUNCTION dialoq.mark_as_taken(p_job_id bigint, p_is_raced boolean) RETURNS tid
LANGUAGE plpgsql AS $$
DECLARE
    v_row tid;
    v_state smallint;
BEGIN
    IF p_is_raced THEN
        BEGIN
            SELECT j.state INTO v_state FROM dialoq.job AS j WHERE j.job_id = p_job_id FOR UPDATE SKIP LOCKED;
            IF v_state = 1 THEN
                UPDATE dialoq.job AS j SET state = 2 WHERE j.job_id = p_job_id RETURNING j.ctid INTO v_row;
                RETURN v_row;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'SBZZZ';
        EXCEPTION WHEN SQLSTATE 'SBZZZ' THEN
            RETURN NULL;
        END;
    END IF;
    -- In a form that names no partial index, as complete_job. Where the statistics were those of one job, each take of a queue with
    -- limits read all ready jobs: one of 2,500 of 10,000 took 30 s, and the takes of others were refused meanwhile.
    PERFORM FROM dialoq.job AS j WHERE j.job_id = p_job_id AND j.state::integer = 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE dialoq.job AS j SET state = 2 WHERE j.job_id = p_job_id RETURNING j.ctid INTO v_row;
    END IF;
    RETURN v_row;
END $$;
