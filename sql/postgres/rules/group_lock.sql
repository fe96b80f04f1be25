-- Locks of conversation groups.
-- Takes, Gives, Errors, Locks: see each function
-- Called by: dialoq_user (unlock_session)

-- The key of a group's advisory lock: a prefix of 16 bits, and 48 bits of the group's id.
CREATE OR REPLACE FUNCTION dialoq.group_key(p_group uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (uuid_hash_extended(p_group, 0) & 281474976710655) | (17513::bigint << 48)
$$;

-- Locks a group if no other session holds it.
-- Gives: whether this transaction holds it now. The lock of the session is taken
-- beside the transaction's: a caller may free its session's locks while its transaction is open, and a RECEIVE of that
-- group would then wait for the rows that the transaction has written.
CREATE OR REPLACE FUNCTION dialoq.try_lock_group(p_group uuid) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    v_is_ours boolean := pg_try_advisory_xact_lock(dialoq.group_key(p_group));
BEGIN
    IF v_is_ours AND current_setting('dialoq.session_locks', true) = '1' THEN
        RETURN pg_try_advisory_lock(dialoq.group_key(p_group));
    END IF;
    RETURN v_is_ours;
END $$;

-- Whether no other session holds a group. The group is not locked afterwards.
CREATE OR REPLACE FUNCTION dialoq.is_group_free(p_group uuid) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT pg_try_advisory_lock(dialoq.group_key(p_group)) AND pg_advisory_unlock(dialoq.group_key(p_group))
$$;

-- Locks a group and waits for its holder. Rows read before may be old afterwards.
-- Errors: 60010 if the holder is a session whose role may not use the broker
CREATE OR REPLACE FUNCTION dialoq.lock_group(p_group uuid) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_timeout text;
    v_key bigint;
BEGIN
    IF dialoq.try_lock_group(p_group) IS NOT FALSE THEN
        RETURN;
    END IF;
    v_timeout := current_setting('lock_timeout');
    IF v_timeout <> '0' THEN
        PERFORM dialoq.wait_for_group(p_group);
        RETURN;
    END IF;
    -- Every role of the server may take an advisory lock. A wait for one that may not use the broker would have no end,
    -- so the holder is checked now and then.
    LOOP
        BEGIN
            PERFORM set_config('lock_timeout', dialoq.holder_check_interval(), true);
            PERFORM dialoq.wait_for_group(p_group);
            PERFORM set_config('lock_timeout', v_timeout, true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            FOREACH v_key IN ARRAY ARRAY[dialoq.group_key(p_group), dialoq.claim_key(p_group)] LOOP
                IF dialoq.is_held_by_stranger(v_key) THEN
                    PERFORM dialoq.fail(60010, format('the lock of conversation group %s is held by %s, whose role may not use '
                        'the broker; end that session or ROLLBACK PREPARED that transaction', p_group, dialoq.lock_holders(v_key)));
                END IF;
            END LOOP;
        END;
    END LOOP;
END $$;

-- After how long a wait its holder is checked: 15 s, but longer than deadlock_timeout, or no deadlock would be found.
CREATE OR REPLACE FUNCTION dialoq.holder_check_interval() RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT least(greatest(15000, 2000 * extract(epoch FROM current_setting('deadlock_timeout')::interval)), 2147483647)::integer::text
$$;

-- Waits until no other session holds a group. The group is not locked afterwards: its lock goes with a subtransaction.
-- Errors: as lock_group
CREATE OR REPLACE FUNCTION dialoq.wait_until_free(p_group uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT dialoq.is_group_free(p_group) THEN
        PERFORM dialoq.lock_group(p_group);
        RAISE EXCEPTION USING ERRCODE = 'SB000', MESSAGE = 'it is free';
    END IF;
EXCEPTION WHEN SQLSTATE 'SB000' THEN
    NULL;
END $$;

-- Waits for the lock of a group. A claim (claim.sql) holds it in shared mode, and its transaction may take the lock over: a
-- session that waited in the lock's own queue would come before it. So it waits for the claim's lock first, also if the group
-- is not claimed now: claim_batch holds the group alone until its end, and its claims stay. The lock is kept, so that no claim is
-- made before this session has the group.
CREATE OR REPLACE FUNCTION dialoq.wait_for_group(p_group uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(dialoq.claim_key(p_group));
    PERFORM pg_advisory_xact_lock(dialoq.group_key(p_group));
    IF current_setting('dialoq.session_locks', true) = '1' THEN
        PERFORM pg_advisory_lock(dialoq.group_key(p_group));
    END IF;
END $$;

-- The other sessions that hold an advisory lock, and prepared transactions, for messages.
CREATE OR REPLACE FUNCTION dialoq.lock_holders(p_key bigint) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((
        SELECT string_agg(CASE
            WHEN p.gid IS NOT NULL THEN format('prepared transaction ''%s'' (user ''%s'')', p.gid, p.owner)
            ELSE format('session %s (user ''%s'', application ''%s'')', a.pid, a.usename, left(a.application_name, 60)) END, ', ')
        FROM pg_locks AS l
        LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
        LEFT JOIN pg_locks AS x
            ON l.pid IS NULL AND x.virtualtransaction = l.virtualtransaction AND x.pid IS NULL AND x.locktype = 'transactionid'
        LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND (a.pid IS NOT NULL OR p.gid IS NOT NULL)
            AND l.classid::bigint << 32 | l.objid::bigint = p_key), 'a session that has ended meanwhile');
END $$;

-- Whether a login may use the broker: it owns the schema, is a member of one of the roles, if only by SET ROLE, or has rights of
-- its own on the schema, as for single verbs. A login that comes by a SECURITY DEFINER function of a member is a stranger: the server
-- shows the login of a session, not the role it acts as.
-- Gives: NULL for an unknown login, and if the roles do not exist, as in a copy of the database on another server
CREATE OR REPLACE FUNCTION dialoq.may_use(p_login oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT (SELECT bool_or(pg_has_role(p_login, r.oid, 'MEMBER')) FROM pg_roles AS r
            WHERE r.rolname IN ('dialoq_user', 'dialoq_admin'))
        OR p_login = (SELECT n.nspowner FROM pg_namespace AS n WHERE n.nspname = 'dialoq')
        OR (SELECT bool_or(pg_has_role(p_login, r.oid, 'MEMBER')) FROM pg_roles AS r
            WHERE has_schema_privilege(r.oid, 'dialoq', 'USAGE'))
$$;

-- Whether a session, or a prepared transaction, holds an advisory lock whose login may not use the broker.
CREATE OR REPLACE FUNCTION dialoq.is_held_by_stranger(p_key bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_locks AS l
        LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
        LEFT JOIN pg_locks AS x
            ON l.pid IS NULL AND x.virtualtransaction = l.virtualtransaction AND x.pid IS NULL AND x.locktype = 'transactionid'
        LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
        LEFT JOIN pg_roles AS r ON r.rolname = p.owner
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND l.classid::bigint << 32 | l.objid::bigint = p_key AND NOT dialoq.may_use(coalesce(a.usesysid, r.oid)));
END $$;

-- Locks the group of an endpoint and applies what is pending on the endpoint.
-- Gives: whether the endpoint exists and is locked, NULL if p_wait is false and another transaction holds the group; notices
CREATE OR REPLACE FUNCTION dialoq.lock_endpoint(p_endpoint_id bigint, p_wait boolean, OUT is_locked boolean, OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_group uuid;
    v_after uuid;
    v_has_pending boolean;
BEGIN
    -- Before any read: tick finds by the transaction's number whether its own reads are complete.
    PERFORM pg_current_xact_id();
    SELECT e.conversation_group_id INTO v_group FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = p_endpoint_id;
    LOOP
        IF v_group IS NULL THEN
            is_locked := false;
            RETURN;
        END IF;
        IF NOT dialoq.try_lock_group(v_group) THEN
            IF NOT p_wait THEN
                RETURN;
            END IF;
            PERFORM dialoq.lock_group(v_group);
        END IF;
        -- The endpoint may have ended or moved before this transaction got the lock.
        SELECT e.conversation_group_id, dialoq.has_pending(e) INTO v_after, v_has_pending
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = p_endpoint_id;
        EXIT WHEN v_after = v_group;
        v_group := v_after;
        v_after := NULL;
    END LOOP;
    is_locked := true;
    IF v_has_pending THEN
        notices := dialoq.apply_pending(p_endpoint_id);
        is_locked := EXISTS (SELECT FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = p_endpoint_id);
    END IF;
END $$;

-- The endpoint of a handle that an application may name, its group locked; NULL if there is none, -1 if `p_wait` is
-- false and another transaction holds it.
CREATE OR REPLACE FUNCTION dialoq.lock_handle(p_handle uuid, p_wait boolean, OUT endpoint_id bigint, OUT notices text)
LANGUAGE plpgsql AS $$
DECLARE
    v_is_locked boolean;
BEGIN
    PERFORM dialoq.check_isolation();
    SELECT e.endpoint_id INTO lock_handle.endpoint_id
    FROM dialoq.conversation_endpoint AS e WHERE e.conversation_handle = p_handle AND NOT e.is_system;
    IF lock_handle.endpoint_id IS NULL THEN
        RETURN;
    END IF;
    SELECT l.is_locked, l.notices INTO v_is_locked, lock_handle.notices FROM dialoq.lock_endpoint(lock_handle.endpoint_id, p_wait) AS l;
    IF v_is_locked IS NULL THEN
        lock_handle.endpoint_id := -1;
    ELSIF NOT v_is_locked THEN
        lock_handle.endpoint_id := NULL;
    END IF;
END $$;

-- Locks a conversation for END and the smaller verbs. A conversation that this side has ended stays ended, so that is checked
-- before the wait for the lock, and again under the lock.
-- Takes: the handle; the error if this side has ended, and the verb it names (NULL: END)
-- Gives: the endpoint, its group locked; notices
CREATE OR REPLACE FUNCTION dialoq.lock_open(p_handle uuid, p_error integer, p_statement text, OUT endpoint_id bigint, OUT notices text)
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('dialoq.session_locks', true), '') = '1' THEN
        -- After a savepoint the lock is the session's, and would stay after a refusal.
        PERFORM dialoq.check_not_ended(p_handle, p_error, p_statement);
    END IF;
    SELECT l.endpoint_id, l.notices INTO lock_open.endpoint_id, lock_open.notices FROM dialoq.lock_handle(p_handle, false) AS l;
    IF lock_open.endpoint_id = -1 THEN
        PERFORM dialoq.check_not_ended(p_handle, p_error, p_statement);
        SELECT l.endpoint_id, l.notices INTO lock_open.endpoint_id, lock_open.notices FROM dialoq.lock_handle(p_handle, true) AS l;
    END IF;
    IF lock_open.endpoint_id IS NULL THEN
        PERFORM dialoq.fail(8426, dialoq.conversation_not_found(p_handle));
    END IF;
    PERFORM dialoq.check_not_ended(p_handle, p_error, p_statement);
END $$;

-- Frees the locks that savepoints made the session's, with every other advisory lock of the session: a session of Dialoq's has
-- no others then. To free one by one what was taken several times over, it would have to ask for each until the server warns.
-- Errors: none
-- Locks: none; call it after the end of the transaction.
CREATE OR REPLACE FUNCTION dialoq.unlock_session() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('dialoq.session_locks', '', false), pg_advisory_unlock_all();
END $$;
