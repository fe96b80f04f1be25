-- ready_group, the claim index: rows that say which groups have messages to receive. receive_order.sql ranks the groups.
-- Takes, Gives, Errors, Locks: see each function

-- Announces a message: every sender makes sure that the message's group has a row at its level, as old or older. An existing row
-- is used only if no other session is about to remove it. Then it is locked against removal until this transaction ends.
CREATE OR REPLACE FUNCTION dialoq.add_ready(p_queue_id integer, p_priority integer, p_queuing_order bigint, p_group uuid)
RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    IF p_queue_id = 0 THEN
        RETURN NULL;
    END IF;
    -- The sums keep the planner from the other index, which it may prefer while the table is small.
    PERFORM FROM dialoq.ready_group AS r
    WHERE r.conversation_group_id = p_group AND r.queue_id + 0 = p_queue_id AND r.rank_from_top + 0 = 10 - p_priority
        AND r.oldest + 0 <= p_queuing_order
    LIMIT 1
    FOR KEY SHARE SKIP LOCKED;
    IF NOT FOUND THEN
        INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id)
        VALUES (p_queue_id, 10 - p_priority, least(p_queuing_order,
            (SELECT min(r.oldest) FROM dialoq.ready_group AS r WHERE r.conversation_group_id = p_group)), p_group);
    END IF;
    RETURN 'q:' || p_queue_id::text;
END $$;

-- Rebuilds the rows of a group from its messages. The rows are locked before the messages are read: a sender that relied on a row
-- has committed by then, and later senders do not find the row. Rows that a sender has locked stay.
-- Gives: whether a message can be received.
CREATE OR REPLACE FUNCTION dialoq.rebuild_ready_rows(p_group uuid) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_held tid[] := ARRAY(
        SELECT r.ctid FROM dialoq.ready_group AS r WHERE r.conversation_group_id = p_group FOR UPDATE SKIP LOCKED);
    v_kept tid[] := '{}';
    v_row tid;
    v_rank record;
    v_is_ready boolean := false;
BEGIN
    FOR v_rank IN SELECT * FROM dialoq.group_ranks(ARRAY[p_group]) LOOP
        v_is_ready := true;
        SELECT r.ctid INTO v_row
        FROM dialoq.ready_group AS r
        WHERE r.conversation_group_id = p_group AND r.queue_id + 0 = v_rank.queue_id
            AND r.rank_from_top + 0 = v_rank.rank_from_top AND r.oldest + 0 = v_rank.oldest
        ORDER BY r.ctid = ANY (v_held) DESC
        LIMIT 1;
        IF v_row IS NULL OR NOT v_row = ANY (v_held) THEN
            -- The row of another transaction disappears if that rolls back.
            INSERT INTO dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id)
            VALUES (v_rank.queue_id, v_rank.rank_from_top, v_rank.oldest, p_group);
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
        WHERE r.queue_id = p_queue_id AND r.rank_from_top = p_rank_from_top AND r.oldest = p_oldest
            AND r.conversation_group_id = p_group
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
CREATE OR REPLACE FUNCTION dialoq.oldest_row(p_group uuid, p_oldest bigint) RETURNS TABLE (oldest bigint)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT least(p_oldest, (SELECT min(r.oldest) FROM dialoq.ready_group AS r WHERE r.conversation_group_id = p_group))
$$;
