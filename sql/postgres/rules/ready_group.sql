-- ready_group, the claim index: rows that say which groups have messages to receive. receive_order.sql ranks the groups.
-- Takes, Gives, Errors, Locks: see each function

-- Generations. Each RECEIVE deletes rows and adds others, and while a session holds an old snapshot the server removes no dead row:
-- after minutes a search walked over millions. So a new row gets the latest generation, and now and then tick begins a new one
-- (turn_generation), moves what is left of the one before, and raises the floor. Every search reads from the floor on.
-- * No row below the floor is live, or may become so by a commit or a rollback.
-- * A row is written with a generation that is read in a statement that began after its transaction had its number
--   (pg_current_xact_id). So, once every transaction that had a number when the latest generation was committed is over, no row of
--   the generation before is added. A reader that only holds a snapshot has no number.
-- * A search by group says (conversation_group_id, generation) >= (group, floor) AND conversation_group_id <= group, so it begins at that
--   place of the index. If it said conversation_group_id = group, the server would begin at the group's first entry and pass over the dead
--   ones; with generation >= floor alone beside it, the planner may choose the other index.
-- * The same turns raise recheck_from, below which tick does not look for requests of rechecks: an id that was given out before the turn
--   had its number belongs to a transaction that had one, and is there to be seen when all of those are over.
-- * A search by rank reads the floor's generation and the next one. The floor may rise between the statement that reads it and the
--   search: a search that finds nothing reads it again (has_floor_risen).

-- Reads the floor again, and gives whether it has risen.
CREATE OR REPLACE FUNCTION dialoq.has_floor_risen(INOUT p_floor bigint, OUT has_risen boolean)
LANGUAGE plpgsql AS $$
DECLARE
    v_floor CONSTANT bigint := p_floor;
BEGIN
    p_floor := (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1);
    has_risen := p_floor > v_floor;
END $$;

-- Announces a message: every sender makes sure that the message's group has a row at its level, as old or older. An existing row
-- is used only if no other session is about to remove it. Then it is locked against removal until this transaction ends.
CREATE OR REPLACE FUNCTION dialoq.add_ready(p_queue_id integer, p_priority integer, p_queuing_order bigint, p_group uuid)
RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_xid xid8;
    g record;
BEGIN
    IF p_queue_id = 0 THEN
        RETURN NULL;
    END IF;
    v_xid := pg_current_xact_id();
    SELECT n.floor, n.latest INTO g FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1;
    -- The sums keep the planner from the other index, which it may prefer while the table is small.
    PERFORM FROM dialoq.ready_group AS r
    WHERE r.conversation_group_id <= p_group AND (r.conversation_group_id, r.generation) >= (p_group, g.floor)
        AND r.queue_id + 0 = p_queue_id AND r.rank_from_top + 0 = 10 - p_priority AND r.oldest + 0 <= p_queuing_order
    LIMIT 1
    FOR KEY SHARE SKIP LOCKED;
    IF NOT FOUND THEN
        INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
        SELECT p_queue_id, 10 - p_priority, o.oldest, p_group, g.latest FROM dialoq.oldest_row(p_group, p_queuing_order, g.floor) AS o;
    END IF;
    RETURN 'q:' || p_queue_id::text;
END $$;

-- Rebuilds the rows of a group from its messages. The rows are locked before the messages are read: a sender that relied on a row
-- has committed by then, and later senders do not find the row. Rows that a sender has locked stay.
-- Takes: the group; whether its rows are right so far: then no message is older than the oldest of them
-- Gives: whether a message can be received.
CREATE OR REPLACE FUNCTION dialoq.rebuild_ready_rows(p_group uuid, p_are_right boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_xid xid8 := pg_current_xact_id();
    g record;
    v_held tid[];
    v_kept tid[] := '{}';
    v_row tid;
    v_rank record;
    v_is_ready boolean := false;
BEGIN
    SELECT n.floor, n.latest INTO g FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1;
    v_held := ARRAY(
        SELECT r.ctid FROM dialoq.ready_group AS r
        WHERE r.conversation_group_id <= p_group AND (r.conversation_group_id, r.generation) >= (p_group, g.floor)
        FOR UPDATE SKIP LOCKED);
    FOR v_rank IN SELECT * FROM dialoq.group_ranks(ARRAY[p_group], p_are_right) LOOP
        v_is_ready := true;
        SELECT r.ctid INTO v_row
        FROM dialoq.ready_group AS r
        WHERE r.conversation_group_id <= p_group AND (r.conversation_group_id, r.generation) >= (p_group, g.floor)
            AND r.queue_id + 0 = v_rank.queue_id
            AND r.rank_from_top + 0 = v_rank.rank_from_top AND r.oldest + 0 = v_rank.oldest
        ORDER BY r.ctid = ANY (v_held) DESC
        LIMIT 1;
        IF v_row IS NULL OR NOT v_row = ANY (v_held) THEN
            -- The row of another transaction disappears if that rolls back.
            INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
            VALUES (v_rank.queue_id, v_rank.rank_from_top, v_rank.oldest, p_group, g.latest);
        ELSE
            v_kept := v_kept || v_row;
        END IF;
    END LOOP;
    DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (v_held) AND NOT r.ctid = ANY (v_kept);
    RETURN v_is_ready;
END $$;

-- Removes a row whose group is empty, if the group is still empty once no sender can rely on the row.
CREATE OR REPLACE FUNCTION dialoq.delete_stale_ready_row(p_queue_id integer, p_rank_from_top smallint, p_oldest bigint, p_group uuid) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_rows tid[] := ARRAY(
        SELECT r.ctid FROM dialoq.ready_group AS r
        WHERE r.conversation_group_id <= p_group AND (r.conversation_group_id, r.generation) >= (p_group, (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1))
            AND r.queue_id + 0 = p_queue_id AND r.rank_from_top + 0 = p_rank_from_top AND r.oldest + 0 = p_oldest
        FOR UPDATE SKIP LOCKED);
BEGIN
    IF cardinality(v_rows) > 0 AND NOT EXISTS (SELECT FROM dialoq.group_ranks(ARRAY[p_group])) THEN
        DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (v_rows);
    END IF;
END $$;

-- The age of the oldest row of a group, or this age if it is lower. No message of the group is older than the oldest row that the
-- same statement sees. One row alone may be younger than a message: its sender did not see the rows of transactions that
-- were open, and a message may come back. Rows that a sender has locked count too. A table with one row, because the planner puts
-- only such a function into the statement that calls it.
-- Takes: the group, the age, the floor of the generations
CREATE OR REPLACE FUNCTION dialoq.oldest_row(p_group uuid, p_oldest bigint, p_floor bigint) RETURNS TABLE (oldest bigint)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT least(p_oldest, (
        SELECT min(r.oldest) FROM dialoq.ready_group AS r
        WHERE r.conversation_group_id <= p_group AND (r.conversation_group_id, r.generation) >= (p_group, p_floor)))
$$;

-- The lowest id that a row of recheck_queue may have. A row that was read before may give a lower one, which is as right.
CREATE OR REPLACE FUNCTION dialoq.recheck_from() RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT g.recheck_from FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1
$$;

-- Whether searches read many dead rows: those for the first groups of each queue, for the rows of those groups, and for requests of
-- rechecks. The server counts
-- the entries of an index that a session reads; those that it knows to be dead for every session are not among them.
CREATE OR REPLACE FUNCTION dialoq.reads_dead_rows() RETURNS boolean
LANGUAGE plpgsql SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    v_queue_id integer;
    v_floor bigint := (SELECT g.floor FROM dialoq.ready_generation AS g ORDER BY g.turn DESC LIMIT 1);
    v_before bigint;
    v_live bigint;
    v_groups uuid[];
    v_seen integer := 0;
BEGIN
    v_before := pg_stat_get_xact_tuples_returned('dialoq.unsettled_pkey'::regclass);
    PERFORM FROM dialoq.recheck_queue AS u WHERE u.recheck_id >= dialoq.recheck_from() ORDER BY u.recheck_id LIMIT 1;
    IF pg_stat_get_xact_tuples_returned('dialoq.unsettled_pkey'::regclass) - v_before > 1000 THEN
        RETURN true;
    END IF;
    FOR v_queue_id IN SELECT q.queue_id FROM dialoq.service_queue AS q LOOP
        -- A broker may have thousands of queues.
        EXIT WHEN v_seen > 10000;
        v_before := pg_stat_get_xact_tuples_returned('dialoq.ready_group_rank'::regclass);
        v_groups := ARRAY(SELECT c.group_id FROM dialoq.candidates(v_queue_id, v_floor, -1::smallint, -1, '{}', 10::smallint) AS c LIMIT 200);
        IF pg_stat_get_xact_tuples_returned('dialoq.ready_group_rank'::regclass) - v_before > 1000 + 2 * cardinality(v_groups) THEN
            RETURN true;
        END IF;
        v_seen := v_seen + cardinality(v_groups);
        v_before := pg_stat_get_xact_tuples_returned('dialoq.ready_group_group'::regclass);
        SELECT count(*) INTO v_live
        FROM unnest(v_groups[:20]) AS g (id)
        CROSS JOIN LATERAL (
            SELECT FROM dialoq.ready_group AS r
            WHERE r.conversation_group_id <= g.id AND (r.conversation_group_id, r.generation) >= (g.id, v_floor)
            OFFSET 0
        ) AS r;
        IF pg_stat_get_xact_tuples_returned('dialoq.ready_group_group'::regclass) - v_before > 1000 + 2 * v_live THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;

-- The notice of a caller that has read many dead rows: tick begins a new generation soon. Not at once, because tick may find that the
-- dead rows lie behind more live ones than it reads; then it is called four times a second in vain.
CREATE OR REPLACE FUNCTION dialoq.dead_rows_notice() RETURNS text
LANGUAGE sql AS $$
    SELECT dialoq.due_notice(dialoq.current_time_utc() + interval '250 ms')
$$;

-- One step from a generation to the next: 1. a new one, if searches read dead rows; 2. the transactions that may not have seen it;
-- 3. once they are over, what is left of the one before moves, at most p_top rows at a time, and the floor rises. Rows that a
-- transaction has locked move later. A move never leaves a message without a row: other sessions see the row before it or after it.
-- Takes: the number of rows; the transaction has no number yet
-- Gives: whether there is a next step; whether tick does no more this time, because the other steps were done half a second ago. A turn
--     takes four steps and may follow another at once, and the other steps may read dead rows too.
CREATE OR REPLACE FUNCTION dialoq.turn_generation(p_top integer, OUT is_turning boolean, OUT is_all boolean)
LANGUAGE plpgsql SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    v_now CONSTANT timestamptz := clock_timestamp();
    v_moved bigint;
    v_last_recheck bigint;
    g dialoq.ready_generation;
BEGIN
    is_turning := false;
    is_all := false;
    SELECT * INTO g FROM dialoq.ready_generation AS n ORDER BY n.turn DESC LIMIT 1;
    IF g.ticked_at > v_now THEN
        -- The server's clock was set back: its times would keep tick from the other steps, and the next turn away.
        g.ticked_at := '-infinity';
        g.next_at := '-infinity';
    END IF;
    IF g.latest = g.floor AND (g.next_at > v_now OR NOT dialoq.reads_dead_rows()) THEN
        RETURN;
    END IF;
    -- Before this transaction has its number. The first id that a sequence will give is its last value too.
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END INTO v_last_recheck FROM dialoq.unsettled_unsettled_id_seq AS s;
    -- Another session is taking this step, or has taken it.
    PERFORM FROM dialoq.ready_generation AS n WHERE n.turn = g.turn FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    is_turning := true;
    is_all := g.ticked_at > v_now - interval '0.5 s';
    IF g.latest = g.floor THEN
        g.latest := g.floor + 1;
        g.after_xid := NULL;
        g.moved := 0;
        g.next_at := v_now;
    ELSIF g.after_xid IS NULL THEN
        -- A number that was given out after the row was read. The snapshot's xmax may be that of a transaction that runs.
        g.after_xid := pg_current_xact_id();
        g.recheck_to := v_last_recheck;
    -- In a restored copy the number may be one that this server has not given out yet: none of those transactions runs here.
    ELSIF g.after_xid <= pg_snapshot_xmin(pg_current_snapshot()) OR g.after_xid > pg_snapshot_xmax(pg_current_snapshot()) THEN
        WITH old AS MATERIALIZED (
            -- From the last one on: receivers take the first ones meanwhile, and what they add is of the new generation.
            SELECT r.ctid AS row, r.queue_id, r.rank_from_top, r.oldest, r.conversation_group_id
            FROM dialoq.ready_group AS r
            WHERE r.generation = g.floor
            ORDER BY r.generation DESC, r.queue_id DESC, r.rank_from_top DESC, r.oldest DESC
            LIMIT greatest(p_top, 1)
            FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM dialoq.ready_group AS r USING old AS o WHERE r.ctid = o.row
        )
        INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id, generation)
        SELECT o.queue_id, o.rank_from_top, o.oldest, o.conversation_group_id, g.latest FROM old AS o;
        GET DIAGNOSTICS v_moved = ROW_COUNT;
        -- A statement of its own: it sees every row that those transactions have left, and a row whose deletion is not committed.
        -- In the order of the index by rank: the planner may walk over all of the other one.
        PERFORM FROM dialoq.ready_group AS r WHERE r.generation = g.floor ORDER BY r.queue_id, r.rank_from_top, r.oldest LIMIT 1;
        IF NOT FOUND THEN
            g.floor := g.latest;
            g.recheck_from := coalesce((
                SELECT u.recheck_id FROM dialoq.recheck_queue AS u
                WHERE u.recheck_id BETWEEN g.recheck_from AND g.recheck_to ORDER BY u.recheck_id LIMIT 1), g.recheck_to + 1);
            -- Moving takes some 10 us a row; so a tenth of the time at most.
            g.next_at := v_now + (g.moved + v_moved) * interval '100 us';
        END IF;
        g.moved := g.moved + v_moved;
    ELSIF is_all THEN
        RETURN;
    END IF;
    is_turning := g.latest > g.floor;
    DELETE FROM dialoq.ready_generation AS n WHERE n.turn = g.turn;
    g.turn := g.turn + 1;
    g.ticked_at := CASE WHEN is_all THEN g.ticked_at ELSE v_now END;
    INSERT INTO dialoq.ready_generation VALUES (g.*);
END $$;
