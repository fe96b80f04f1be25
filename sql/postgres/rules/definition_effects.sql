-- The effects of definitions on open conversations. A client calls the on_* functions after it has written the rows of the
-- definitions, before define_end.
-- Takes: see each function; p_affected: endpoints
-- Gives: notices
-- Errors: 1205, if two transactions wait for each other's groups
-- Locks: the groups of changed conversations, waiting. A conversation that only gets a message is not locked
-- Called by: dialoq_admin (on_contract_dropped, on_service_contracts_dropped, on_service_moved, on_service_dropped,
--     on_queue_dropped, on_queue_status_changed, on_new_broker, on_error_broker_conversations, on_notification_created,
--     on_notification_dropped)

-- The contract was dropped: conversations over it break.
CREATE FUNCTION dialoq.on_contract_dropped(p_contract_id integer)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_affected bigint[] := ARRAY(
        SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e WHERE e.service_contract_id = p_contract_id
        ORDER BY e.endpoint_id);
    v_id bigint;
    v_notices text := dialoq.lock_affected(v_affected);
BEGIN
    FOREACH v_id IN ARRAY v_affected LOOP
        v_notices := dialoq.add_notices(v_notices, dialoq.raise_error(v_id, -8487, 'the contract of the conversation was dropped'));
    END LOOP;
    PERFORM dialoq.request_recheck(0, true);
    RETURN QUERY SELECT dialoq.publish_notices(concat_ws(' ', v_notices, dialoq.due_notice(dialoq.current_time_utc())));
END
$$;

-- The service accepts these contracts no longer: conversations over them that it is the target of break, on both sides.
CREATE FUNCTION dialoq.on_service_contracts_dropped(p_service_id integer, p_service_contract_id integer[])
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_row record;
    v_notices text;
BEGIN
    FOR v_row IN
        SELECT e.endpoint_id, p.endpoint_id AS peer_id
        FROM dialoq.conversation_endpoint AS e
        LEFT JOIN dialoq.conversation_endpoint AS p ON p.conversation_id = e.conversation_id AND p.is_initiator
        WHERE NOT e.is_initiator AND e.service_id = p_service_id
            AND e.service_contract_id = ANY (p_service_contract_id)
        ORDER BY e.endpoint_id
    LOOP
        v_notices := dialoq.add_notices(v_notices,
            dialoq.raise_error(v_row.endpoint_id, -8468, 'the service was altered: it lost the contract'));
        v_notices := dialoq.add_notices(v_notices,
            dialoq.raise_error(v_row.peer_id, -8469, 'the remote service was altered: it lost the contract'));
    END LOOP;
    PERFORM dialoq.request_recheck(0, true);
    RETURN QUERY SELECT dialoq.publish_notices(concat_ws(' ', v_notices, dialoq.due_notice(dialoq.current_time_utc())));
END
$$;

-- All messages of the service go to another queue: rows name endpoints, so only ready_group changes.
CREATE FUNCTION dialoq.on_service_moved(p_service_id integer, p_from_queue_id integer, p_to_queue_id integer)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_affected bigint[] := ARRAY(
        SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e WHERE e.service_id = p_service_id
        ORDER BY e.endpoint_id);
    v_notices text;
BEGIN
    IF NOT EXISTS (SELECT FROM dialoq.service AS s WHERE s.service_id = p_service_id AND s.queue_id = p_to_queue_id) THEN
        PERFORM dialoq.fail(60005, format('service %s does not use queue %s; write the service first', p_service_id,
            p_to_queue_id));
    END IF;
    v_notices := dialoq.lock_affected(v_affected);
    -- Twice: a row that tick moves to the next generation at this moment is found only by a statement that begins after that.
    FOR v_try IN 1..2 LOOP
        UPDATE dialoq.ready_group AS r SET queue_id = p_to_queue_id
        WHERE r.queue_id = p_from_queue_id AND EXISTS (
            SELECT FROM dialoq.conversation_endpoint AS e
            WHERE e.conversation_group_id = r.conversation_group_id AND e.service_id = p_service_id);
    END LOOP;
    PERFORM dialoq.request_recheck(0, true);
    RETURN QUERY SELECT dialoq.publish_notices(concat_ws(' ', v_notices, 'q:' || p_from_queue_id::text, 'q:' || p_to_queue_id::text,
        dialoq.due_notice(dialoq.current_time_utc())));
END
$$;

-- The service was dropped: its conversations are erased, and their peers get an Error.
CREATE FUNCTION dialoq.on_service_dropped(p_service_id integer, p_queue_id integer)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_affected bigint[] := ARRAY(
        SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e WHERE e.service_id = p_service_id
        ORDER BY e.endpoint_id);
    v_row record;
    v_notices text := dialoq.lock_affected(v_affected);
BEGIN
    FOR v_row IN
        SELECT e.endpoint_id, e.conversation_id, e.is_initiator
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = ANY (v_affected)
        ORDER BY e.endpoint_id
    LOOP
        v_notices := dialoq.add_notices(v_notices, (
            SELECT dialoq.raise_error(p.endpoint_id, -8470, 'the remote service was dropped')
            FROM dialoq.conversation_endpoint AS p
            WHERE p.conversation_id = v_row.conversation_id AND p.is_initiator = (NOT v_row.is_initiator)));
        IF cardinality(v_affected) <= 500 THEN
            PERFORM dialoq.erase(v_row.endpoint_id);
        END IF;
    END LOOP;
    IF cardinality(v_affected) > 500 THEN
        PERFORM dialoq.erase_all(v_affected);
    END IF;
    PERFORM dialoq.request_recheck(0, true);
    RETURN QUERY SELECT dialoq.publish_notices(concat_ws(' ', v_notices, 'q:' || p_queue_id::text, dialoq.due_notice(dialoq.current_time_utc())));
END
$$;

-- The queue was dropped: the receivers that wait in it get a notice. No service uses it, but a SEND that began before its service
-- moved may have announced its message to it; that row goes to the queue of the service.
CREATE FUNCTION dialoq.on_queue_dropped(p_queue_id integer)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_notices text;
BEGIN
    WITH moved AS (
        UPDATE dialoq.ready_group AS r SET queue_id = s.queue_id
        FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE r.queue_id = p_queue_id AND e.conversation_group_id = r.conversation_group_id AND s.queue_id <> p_queue_id
        RETURNING s.queue_id
    )
    SELECT string_agg(DISTINCT 'q:' || m.queue_id::text, ' ') INTO v_notices FROM moved AS m;
    -- A row of such a message that tick has moved to the next generation meanwhile, or that has come since, is left to the recheck that
    -- the move of the service has requested. So is one that an open SEND relies on: the drop would wait for the end of its transaction.
    DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (ARRAY(
        SELECT f.ctid FROM dialoq.ready_group AS f
        WHERE f.queue_id = p_queue_id AND NOT EXISTS (
            SELECT FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
            WHERE e.conversation_group_id = f.conversation_group_id AND s.queue_id <> p_queue_id)
        FOR UPDATE SKIP LOCKED));
    PERFORM dialoq.forget_rollbacks(p_queue_id);
    RETURN QUERY SELECT dialoq.publish_notices(concat_ws(' ', v_notices, 'q:' || p_queue_id::text));
END
$$;

-- The queue was enabled, which forgets its rollbacks, or disabled.
CREATE FUNCTION dialoq.on_queue_status_changed(p_queue_id integer, p_is_enabled boolean)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_is_enabled THEN
        PERFORM dialoq.forget_rollbacks(p_queue_id);
    END IF;
    RETURN QUERY SELECT dialoq.publish_notices('q:' || p_queue_id::text);
END
$$;

-- The broker is another: all conversations are erased without a message. Notifications begin theirs again.
CREATE FUNCTION dialoq.on_new_broker()
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_affected bigint[] := ARRAY(SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e);
    v_made bigint[];
    v_id integer;
    v_notices text := dialoq.lock_affected(v_affected);
BEGIN
    -- A first SEND that was waited for has made the other side, which is locked and erased too.
    v_made := ARRAY(
        SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e
        WHERE e.conversation_id IN (
            SELECT k.conversation_id FROM dialoq.conversation_endpoint AS k WHERE k.endpoint_id = ANY (v_affected))
        EXCEPT SELECT k.id FROM unnest(v_affected) AS k (id));
    v_notices := concat_ws(' ', v_notices, dialoq.lock_affected(v_made));
    PERFORM dialoq.erase_all(v_affected || v_made);
    PERFORM dialoq.request_recheck(0, true);
    FOR v_id IN SELECT n.event_notification_id FROM dialoq.event_notification AS n ORDER BY n.event_notification_id LOOP
        PERFORM dialoq.begin_notification(v_id);
    END LOOP;
    RETURN QUERY
    SELECT dialoq.publish_notices(concat_ws(' ', v_notices, (SELECT string_agg('q:' || q.queue_id::text, ' ') FROM dialoq.service_queue AS q)));
END
$$;

-- Every conversation breaks.
CREATE FUNCTION dialoq.on_error_broker_conversations()
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id bigint;
    -- An open SEND of one of these may be making the other side, which gets its Error too.
    v_notices text := dialoq.lock_affected(ARRAY(
        SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e
        WHERE NOT e.is_system AND e.is_initiator AND NOT e.is_peer_known AND e.state IN ('SO', 'CO') ORDER BY e.endpoint_id));
BEGIN
    FOR v_id IN
        SELECT e.endpoint_id FROM dialoq.conversation_endpoint AS e WHERE NOT e.is_system ORDER BY e.endpoint_id
    LOOP
        v_notices := dialoq.add_notices(v_notices, dialoq.raise_error(
            v_id, -9719, 'the conversations of this database were ended by ERROR_BROKER_CONVERSATIONS'));
    END LOOP;
    RETURN QUERY SELECT dialoq.publish_notices(v_notices);
END
$$;

-- An event notification begins its conversation.
CREATE FUNCTION dialoq.on_notification_created(p_event_notification_id integer)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM dialoq.begin_notification(p_event_notification_id);
    RETURN QUERY SELECT NULL::text;
END
$$;

-- An event notification ends its conversation.
CREATE FUNCTION dialoq.on_notification_dropped(p_conversation_handle uuid)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT dialoq.publish_notices(dialoq.end_notification(p_conversation_handle));
END
$$;

-- Locks the groups of endpoints, in the order of their keys, and applies what is pending on the endpoints.
-- A server may not have enough locks for very many groups. Above 500 endpoints only the groups that others hold are waited for.
CREATE FUNCTION dialoq.lock_affected(p_affected bigint[])
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- One endpoint of each group.
    v_ids bigint[] := ARRAY(
        SELECT DISTINCT ON (dialoq.group_key(e.conversation_group_id)) e.endpoint_id
        FROM dialoq.conversation_endpoint AS e
        WHERE e.endpoint_id = ANY (p_affected)
            AND (cardinality(p_affected) <= 500 OR dialoq.group_key(e.conversation_group_id) IN (
                SELECT (l.classid::bigint << 32) | l.objid::bigint
                FROM pg_locks AS l
                WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.pid <> pg_backend_pid()
                    AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())))
        ORDER BY dialoq.group_key(e.conversation_group_id), e.endpoint_id);
    v_id bigint;
    v_lock record;
    v_notices text;
BEGIN
    -- Groups that others hold are waited for first, one by one, while this transaction holds none. A client gives up its wait after
    -- 250 ms and tries again until the holder ends. It held all groups before that one meanwhile: they were free for 20 ms between two
    -- tries, and their messages came seconds late.
    FOREACH v_id IN ARRAY v_ids LOOP
        PERFORM dialoq.wait_until_free(e.conversation_group_id) FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = v_id;
    END LOOP;
    FOREACH v_id IN ARRAY v_ids LOOP
        SELECT * INTO v_lock FROM dialoq.lock_endpoint(v_id, true);
        v_notices := concat_ws(' ', v_notices, v_lock.notices);
    END LOOP;
    RETURN v_notices;
END
$$;

-- Removes endpoints that are too many to be locked one by one, with their groups and messages.
CREATE FUNCTION dialoq.erase_all(p_affected bigint[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM dialoq.transmission AS t WHERE t.endpoint_id = ANY (p_affected);
    DELETE FROM dialoq.queue_message AS m WHERE m.endpoint_id = ANY (p_affected);
    -- As in on_queue_dropped.
    DELETE FROM dialoq.ready_group AS r WHERE r.ctid = ANY (ARRAY(
        SELECT f.ctid FROM dialoq.ready_group AS f JOIN dialoq.conversation_endpoint AS e ON e.conversation_group_id = f.conversation_group_id
        WHERE e.endpoint_id = ANY (p_affected)
        FOR UPDATE OF f SKIP LOCKED));
    DELETE FROM dialoq.send_counter AS n WHERE n.endpoint_id = ANY (p_affected);
    DELETE FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = ANY (p_affected);
    -- Last: a RECEIVE that is waited for above may have kept its messages.
    DELETE FROM dialoq.retained_message AS m WHERE m.endpoint_id = ANY (p_affected);
END
$$;
