-- Presence: a process is alive as long as a session of its own holds the lock of its id. Shared, so that a new session
-- need not wait until the server has detected the end of the old one. is_process_gone tries to lock it alone.
-- Takes: process: the id that a process made for itself
-- Gives: nothing; process_lock: the key; is_process_gone: whether no session holds it but such as may not use the broker
-- Errors: 60005; 60010 if another session holds the lock alone for 10 s
-- Locks: the process's lock, until the session ends; is_process_gone: if it is free, until the transaction ends
-- Called by: dialoq_user
CREATE FUNCTION dialoq.process_lock(p_process uuid)
RETURNS bigint LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Our prefix, and the last 48 bits of the id.
    SELECT (17488::bigint << 48) | ('x' || right(p_process::text, 12))::bit(48)::bigint;
$$;

CREATE FUNCTION dialoq.hold_presence(p_process uuid)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
BEGIN
    PERFORM dialoq.check_id('p_process', p_process);
    PERFORM pg_advisory_lock_shared(dialoq.process_lock(p_process));
    -- The owner's limit on idle sessions, which PostgreSQL 14 has first, would end this one and free the places of its readers.
    IF current_setting('idle_session_timeout', true) IS NOT NULL THEN
        PERFORM set_config('idle_session_timeout', '0', false);
    END IF;
EXCEPTION WHEN lock_not_available THEN
    PERFORM dialoq.fail(60010, format('the lock of process %s is held by %s; end that session', p_process,
        dialoq.lock_holders(dialoq.process_lock(p_process))));
END
$$;

CREATE FUNCTION dialoq.is_process_gone(p_process uuid)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_try_advisory_xact_lock(dialoq.process_lock(p_process)) THEN
        RETURN true;
    END IF;
    -- Every role of the server may take such a lock, and keep the jobs of a dead process with it.
    RETURN NOT EXISTS (
        SELECT FROM pg_locks AS l
        LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND (l.classid::bigint << 32 | l.objid::bigint) = dialoq.process_lock(p_process)
            AND coalesce(dialoq.may_use(a.usesysid), true));
END
$$;
