-- Definitions that need all conversations of a service at one moment, while transactions keep some of them busy: after a second a
-- client holds receives back, until the definition has them.
-- Takes, Gives, Errors, Locks: see each function
-- Called by: dialoq_admin (hold_receives)

-- Holds receives back from the queues of the conversations that a definition waits for. A transaction that holds a conversation
-- already goes on.
-- Takes: the contract or the service of these conversations (both NULL: all conversations); for how many ms
-- Gives: notices
-- Errors: 60005
-- Locks: the rows of the queues, without waiting
CREATE FUNCTION dialoq.hold_receives(p_contract_id integer, p_service_id integer, p_hold_ms integer)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_until timestamptz;
BEGIN
    IF (p_hold_ms BETWEEN 1 AND 60000) IS NOT TRUE THEN
        PERFORM dialoq.fail(60005, format('p_hold_ms is %s; it must be 1 to 60000', coalesce(p_hold_ms::text, 'NULL')));
    END IF;
    v_until := dialoq.current_time_utc() + p_hold_ms * interval '1 ms';
    UPDATE dialoq.service_queue AS q SET receives_held_until = v_until
    WHERE q.queue_id = ANY (ARRAY(
        SELECT h.queue_id FROM dialoq.service_queue AS h
        WHERE EXISTS (
            SELECT FROM dialoq.service AS s JOIN dialoq.conversation_endpoint AS e ON e.service_id = s.service_id
            WHERE s.queue_id = h.queue_id AND (p_service_id IS NULL OR s.service_id = p_service_id)
                AND (p_contract_id IS NULL OR e.service_contract_id = p_contract_id))
        -- Another definition, or a queue that is being turned off, is not waited for.
        FOR NO KEY UPDATE OF h SKIP LOCKED));
    RETURN QUERY SELECT dialoq.publish_notices(dialoq.due_notice(v_until));
END
$$;

-- Whether receives are held back from a queue, and this transaction holds no group: a definition may wait for what it holds.
CREATE OR REPLACE FUNCTION dialoq.is_held_back(p_queue_id integer) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM dialoq.service_queue AS q
        WHERE q.queue_id = p_queue_id AND q.receives_held_until > dialoq.current_time_utc()
            -- No hold is longer: the clock was set back.
            AND q.receives_held_until <= dialoq.current_time_utc() + interval '60 s')
    AND NOT EXISTS (
        SELECT FROM pg_locks AS l
        -- The prefix of group_key.
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.pid = pg_backend_pid() AND l.granted
            AND l.classid::bigint >> 16 = 17513)
$$;

-- Ends the holds whose time is over, or all of them after a definition.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.end_holds(p_now timestamptz, p_are_all boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_notices text;
BEGIN
    IF EXISTS (SELECT FROM dialoq.service_queue AS q WHERE q.receives_held_until IS NOT NULL) THEN
        WITH ended AS (
            UPDATE dialoq.service_queue AS q SET receives_held_until = NULL
            WHERE q.queue_id = ANY (ARRAY(
                SELECT h.queue_id FROM dialoq.service_queue AS h
                WHERE p_are_all AND h.receives_held_until IS NOT NULL OR h.receives_held_until <= p_now
                    OR h.receives_held_until > p_now + interval '60 s'
                FOR NO KEY UPDATE SKIP LOCKED))
            RETURNING q.queue_id
        )
        SELECT string_agg('q:' || e.queue_id::text, ' ') INTO v_notices FROM ended AS e;
    END IF;
    RETURN v_notices;
END $$;
