-- The checks of the arguments that a member of dialoq_user or dialoq_admin gives.
-- Takes, Gives, Errors, Locks: see each function

-- Whether a verdict on a body is one that a client of Dialoq gives. Its number is read when the message is delivered, in
-- the transaction that delivers it, so it is checked on entry.
CREATE OR REPLACE FUNCTION dialoq.is_body_fault(p_body_fault text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT p_body_fault IS NULL OR p_body_fault = ''
        OR p_body_fault ~ '^-(8430|9615)[|]' AND length(p_body_fault) <= 10000
$$;

-- The message of the refusal of a verdict.
CREATE OR REPLACE FUNCTION dialoq.bad_body_fault(p_body_fault text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format('p_body_fault is ''%s'', %s characters; it must be empty, or -8430 or -9615, a | and the description, '
        '10000 characters at most', left(p_body_fault, 40), length(p_body_fault))
$$;

-- Refuses a verdict that no client of Dialoq gives.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.check_body_fault(p_body_fault text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF NOT dialoq.is_body_fault(p_body_fault) THEN
        PERFORM dialoq.fail(60005, dialoq.bad_body_fault(p_body_fault));
    END IF;
END $$;

-- Refuses NULL, and a number outside of its range.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.check_range(p_name text, p_value bigint, p_least bigint, p_most bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_value IS NULL OR p_value NOT BETWEEN p_least AND p_most THEN
        PERFORM dialoq.fail(60005, format('%s is %s; it must be %s to %s', p_name, coalesce(p_value::text, 'NULL'), p_least, p_most));
    END IF;
END $$;

-- Whether an array is a column of so many values: one dimension, beginning with 1.
CREATE OR REPLACE FUNCTION dialoq.is_column(p_values anyarray, p_count integer) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT cardinality(p_values) = p_count AND array_ndims(p_values) = 1 AND array_lower(p_values, 1) = 1
$$;

-- Refuses arguments that are not columns of one table.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.refuse_columns(p_function text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dialoq.fail(60005, format('the arguments of dialoq.%s are the columns of a table; they must be arrays of one dimension, '
        'of as many values each, that begin with 1', p_function));
END $$;

-- Refuses NULL where an id is needed.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.check_id(p_name text, p_value uuid) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_value IS NULL THEN
        PERFORM dialoq.fail(60005, format('%s is NULL; it must be an id', p_name));
    END IF;
END $$;

-- Refuses a row that a function was asked to write and the table does not take: NULL where a value is needed, a number
-- that is too large, a name that another row has.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.refuse_row(p_function text, p_why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dialoq.fail(60005, format('the arguments of dialoq.%s make no row: %s; correct them', p_function, p_why));
END $$;

-- Whether check_isolation has nothing to refuse. A function that is called at each step costs the server a statement, this one
-- an expression.
CREATE OR REPLACE FUNCTION dialoq.is_read_committed() RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT current_setting('transaction_isolation') = 'read committed' AND current_setting('transaction_read_only') = 'off'
$$;

-- Refuses a transaction with a fixed snapshot: it would not see the work of another transaction after a wait for its lock. And
-- one that only reads: a RECEIVE that finds nothing writes nothing, so its caller would wait for ever.
-- Errors: 60026; 25006
CREATE OR REPLACE FUNCTION dialoq.check_isolation() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM dialoq.fail(60026, format('the transaction is %s; the broker needs READ COMMITTED',
            upper(current_setting('transaction_isolation'))));
    END IF;
    IF current_setting('transaction_read_only') = 'on' THEN
        RAISE EXCEPTION 'the transaction only reads' USING ERRCODE = 'read_only_sql_transaction', DETAIL = 'dialoq 60014';
    END IF;
END $$;

-- Refuses a client whose definitions are out of date. A version that this transaction has raised itself (break_notification)
-- does not count, because the client cannot read it before the COMMIT.
CREATE OR REPLACE FUNCTION dialoq.check_catalog_version(p_catalog_version bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
BEGIN
    IF p_catalog_version IS NOT NULL THEN
        SELECT b.catalog_version INTO v_now FROM dialoq.broker AS b;
        IF v_now <> p_catalog_version
            AND v_now - coalesce(nullif(current_setting('dialoq.versions_raised', true), ''), '0')::bigint <> p_catalog_version
        THEN
            PERFORM dialoq.fail(60033, format('the definitions are at version %s, the client''s at %s; read them again',
                v_now, p_catalog_version));
        END IF;
    END IF;
END $$;

-- Refuses a verb on a conversation that this side has ended. An initiator whose peer has ended too counts as
-- erased: only the holder of its group removes the row.
CREATE OR REPLACE FUNCTION dialoq.check_not_ended(p_handle uuid, p_error integer, p_statement text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    e dialoq.conversation_endpoint;
    v_peer_state text;
BEGIN
    SELECT * INTO e FROM dialoq.conversation_endpoint AS c WHERE c.conversation_handle = p_handle;
    IF e.state = 'DO' AND e.is_initiator THEN
        SELECT p.state INTO v_peer_state
        FROM dialoq.conversation_endpoint AS p WHERE p.conversation_id = e.conversation_id AND NOT p.is_initiator;
        IF v_peer_state IN ('DO', 'CD') OR v_peer_state IS NULL AND e.is_peer_known THEN
            PERFORM dialoq.fail(8426, dialoq.conversation_not_found(p_handle));
        END IF;
    END IF;
    IF e.state IN ('DO', 'CD') THEN
        PERFORM dialoq.fail(p_error, format('conversation %s is %s%s', p_handle, dialoq.state_name(e.state),
            coalesce('; ' || p_statement || ' needs one that this side has not ended', ': this side has ended it already')));
    END IF;
END $$;

-- Refuses a message that no session could receive: the server makes no row above 1 GB, and it would stand before the others of its queue.
-- In the text format, which most clients of plain SQL read, a body is twice as long. A client of Dialoq takes 999,000,000 as max_body_bytes
-- at most, and reads the binary format.
-- Takes: the bytes of the body, and of the trace context, whose limit is that of the clients
-- Errors: 8459, 60005
CREATE OR REPLACE FUNCTION dialoq.check_message_bytes(p_body integer, p_trace integer) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_most integer := CASE WHEN dialoq.is_client_call() THEN 999000000 ELSE 500000000 END;
BEGIN
    IF p_body > v_most THEN
        PERFORM dialoq.fail(8459, format('the message body has %s bytes; the limit is %s', p_body, v_most));
    END IF;
    IF p_trace > 65536 THEN
        PERFORM dialoq.fail(60005, format('the trace context is %s bytes long; it must be at most 65536 bytes', p_trace));
    END IF;
END $$;

-- The queue of that name, if RECEIVE is enabled on it.
-- Errors: 9617, 60002, 60026
CREATE OR REPLACE FUNCTION dialoq.receivable(p_queue text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    v_queue record;
BEGIN
    PERFORM dialoq.check_isolation();
    SELECT q.queue_id, q.name, q.is_receive_enabled INTO v_queue
    FROM dialoq.service_queue AS q WHERE q.folded_name = lower(p_queue COLLATE "C");
    IF NOT FOUND THEN
        PERFORM dialoq.fail(60002, format('queue ''%s'' was not found', p_queue));
    ELSIF NOT v_queue.is_receive_enabled THEN
        PERFORM dialoq.fail(9617, format('queue ''%s'' is disabled; ALTER QUEUE [%s] WITH STATUS = ON enables it',
            v_queue.name, v_queue.name));
    END IF;
    RETURN v_queue.queue_id;
END $$;
