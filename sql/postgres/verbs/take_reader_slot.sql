-- MAX_QUEUE_READERS counts the readers of all processes: each reader holds one of so many slots. One session may hold
-- several of them.
-- Takes: queue_id, max_queue_readers; free_reader_slot: queue_id, slot
-- Gives: slot from 0, NULL if all are taken; free_reader_slot: nothing
-- Errors: none of its own
-- Locks: the slot's lock, until it is freed or the session ends; never waits
CREATE FUNCTION dialoq.reader_slot_lock(p_queue_id integer, p_slot integer)
RETURNS bigint LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Our prefix, 32 bits of the queue, 16 bits of the slot.
    SELECT (17490::bigint << 48) | (p_queue_id::bigint << 16) | p_slot;
$$;

CREATE FUNCTION dialoq.take_reader_slot(p_queue_id integer, p_max_queue_readers integer)
RETURNS TABLE (slot integer) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- A session could take its own slot twice, so what is held, by anybody, is looked up first.
    v_held bigint[] := ARRAY(
        SELECT (l.classid::bigint << 32) | l.objid::bigint
        FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.objsubid = 1
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND ((l.classid::bigint << 32) | l.objid::bigint)
                BETWEEN dialoq.reader_slot_lock(p_queue_id, 0) AND dialoq.reader_slot_lock(p_queue_id, 65535)
    );
BEGIN
    -- Those above a limit that was lowered count too.
    IF cardinality(v_held) >= p_max_queue_readers THEN
        slot := NULL;
        RETURN NEXT;
        RETURN;
    END IF;
    FOR v_slot IN 0 .. least(p_max_queue_readers, 65536) - 1 LOOP
        IF dialoq.reader_slot_lock(p_queue_id, v_slot) <> ALL (v_held)
            AND pg_try_advisory_lock(dialoq.reader_slot_lock(p_queue_id, v_slot))
        THEN
            slot := v_slot;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    slot := NULL;
    RETURN NEXT;
END
$$;

CREATE FUNCTION dialoq.free_reader_slot(p_queue_id integer, p_slot integer)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_advisory_unlock(dialoq.reader_slot_lock(p_queue_id, p_slot));
$$;
