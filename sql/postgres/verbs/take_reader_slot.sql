-- MAX_QUEUE_READERS counts the readers of all processes: each reader holds one of so many slots. One session may hold
-- several of them.
-- Takes: queue_id, max_queue_readers; free_reader_slot: queue_id, slot
-- Gives: slot from 0, NULL if all are taken; free_reader_slot: nothing
-- Errors: 60005
-- Locks: the slot's lock, until it is freed or the session ends; never waits
-- Called by: dialoq_user (take_reader_slot, free_reader_slot)
CREATE FUNCTION dialoq.reader_slot_lock(p_queue_id integer, p_slot integer)
RETURNS bigint LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Our prefix, 32 bits of the queue, 16 bits of the slot.
    SELECT (17490::bigint << 48) | (p_queue_id::bigint << 16) | p_slot;
$$;

CREATE FUNCTION dialoq.take_reader_slot(p_queue_id integer, p_max_queue_readers integer)
RETURNS TABLE (slot integer) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_held bigint[];
    v_foreign bigint[];
    v_lock bigint;
    v_places integer := 0;
BEGIN
    PERFORM dialoq.check_range('p_queue_id', p_queue_id, 1, 2147483647);
    PERFORM dialoq.check_range('p_max_queue_readers', p_max_queue_readers, 0, 65535);
    -- A session could take its own slot twice, so what is held, by any session, is looked up first. Every role of the server
    -- may take such a lock: a lock of a role that may not receive takes a number away, and no reader's place.
    SELECT coalesce(array_agg(l.key) FILTER (WHERE l.is_reader), '{}'),
        coalesce(array_agg(l.key) FILTER (WHERE NOT l.is_reader), '{}')
    INTO v_held, v_foreign
    FROM (
        SELECT (k.classid::bigint << 32) | k.objid::bigint AS key,
            coalesce(dialoq.may_use(a.usesysid), true) AS is_reader
        FROM pg_locks AS k
        LEFT JOIN pg_stat_activity AS a ON a.pid = k.pid
        WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted
            AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND ((k.classid::bigint << 32) | k.objid::bigint)
                BETWEEN dialoq.reader_slot_lock(p_queue_id, 0) AND dialoq.reader_slot_lock(p_queue_id, 65535)
    ) AS l;
    -- Those above a limit that was lowered count too.
    IF cardinality(v_held) < p_max_queue_readers THEN
        -- The lookup above is not atomic: two sessions may see the same free place. The locks decide, because every session
        -- tries the same first p_max_queue_readers numbers that no foreign role holds, and no others.
        FOR v_slot IN 0 .. 65535 LOOP
            v_lock := dialoq.reader_slot_lock(p_queue_id, v_slot);
            CONTINUE WHEN v_lock = ANY (v_foreign);
            v_places := v_places + 1;
            EXIT WHEN v_places > p_max_queue_readers;
            IF v_lock <> ALL (v_held) AND pg_try_advisory_lock(v_lock) THEN
                slot := v_slot;
                RETURN NEXT;
                RETURN;
            END IF;
        END LOOP;
    END IF;
    slot := NULL;
    RETURN NEXT;
END
$$;

CREATE FUNCTION dialoq.free_reader_slot(p_queue_id integer, p_slot integer)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM dialoq.check_range('p_queue_id', p_queue_id, 1, 2147483647);
    PERFORM dialoq.check_range('p_slot', p_slot, 0, 65535);
    PERFORM pg_advisory_unlock(dialoq.reader_slot_lock(p_queue_id, p_slot));
END
$$;
