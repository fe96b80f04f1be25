-- The checks and the counting of a SEND.
-- Takes, Gives, Errors, Locks: see each function

-- The fault of a body by its message type, as far as PostgreSQL can check it: '', or the code and the description.
-- Errors: 60026 for a type that has a schema
CREATE OR REPLACE FUNCTION dialoq.body_fault(p_message_type_id integer, p_body bytea) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_type record;
    v_what text;
    v_why text;
    v_text text;
BEGIN
    SELECT t.name, t.validation INTO v_type FROM dialoq.message_type AS t WHERE t.message_type_id = p_message_type_id;
    IF v_type.validation = 'N' OR coalesce(length(p_body), 0) = 0 THEN
        RETURN '';
    ELSIF v_type.validation = 'E' THEN
        RETURN format('-8430|the body of a message of type ''%s'' must be empty: %s bytes were found; the type allows no body',
            v_type.name, length(p_body));
    ELSIF v_type.validation IN ('V', 'S') THEN
        PERFORM dialoq.fail(60026, dialoq.needs_client(v_type.name));
    END IF;
    BEGIN
        IF v_type.validation = 'J' THEN
            v_what := '-8430|the body of a message of type ''%s'' is not JSON: %s';
            PERFORM convert_from(p_body, 'UTF8')::json;
        ELSE
            v_what := '-9615|the body of a message of type ''%s'' is not well-formed XML: %s';
            v_text := dialoq.xml_decoded(p_body);
            -- No entity is expanded, no file fetched. A declaration stands before the first element, behind comments and instructions;
            -- elsewhere the words are text.
            IF v_text ~ '^(?:[[:space:]]|<!--(?:[^-]|-[^-])*-->|<[?](?:[^?]|[?]+[^?>])*[?]+>)*<!DOCTYPE' THEN
                RAISE EXCEPTION 'it has a document type declaration';
            END IF;
            -- The server's parser takes a time in proportion to the square of a comment that has -- in it, and no cancel stops it: 11 s for
            -- 320 kB. So such a body is refused before.
            IF position('<!--' IN v_text) > 0 AND v_text !~ ('^(?:[^<]|<[^!?<]|<!--(?:[^-]|-[^-])*-->|<[?][^?>](?:[^?]|[?]+[^?>])*[?]+>'
                || '|<![[]CDATA[[](?:[^]]|[]][^]]|[]][]]+[^]>])*[]][]]+>)*$')
            THEN
                RAISE EXCEPTION 'a comment, a CDATA section or an instruction in it is malformed';
            END IF;
            -- Likewise of the attributes of one element: 80,000 took 11 s. The client allows as many. What looks like such an element in a
            -- CDATA section or a comment is refused too.
            IF EXISTS (
                SELECT FROM unnest(string_to_array(v_text, '<')) AS s (part)
                WHERE length(part) > 5000 AND part ~ '^[^!?/]'
                    AND (SELECT count(*) FROM regexp_matches(
                        substring(part FROM '^(?:[^>"'']|"[^"]*"|''[^'']*'')*'), '"[^"]*"|''[^'']*''', 'g')) > 1024)
            THEN
                RAISE EXCEPTION 'an element in it has more than 1024 attributes';
            END IF;
            PERFORM xmlparse(DOCUMENT v_text);
        END IF;
    EXCEPTION WHEN insufficient_resources OR internal_error OR invalid_regular_expression THEN
        -- The server lacks memory or room; the body may be good. The second is a text that is too long for one of its allocations, the
        -- third a regular expression that has none left.
        RAISE;
    WHEN others THEN
        GET STACKED DIAGNOSTICS v_why = MESSAGE_TEXT;
        RETURN format(v_what, v_type.name, v_why);
    END;
    RETURN '';
END $$;

-- The message of a refusal of a body that only a client of Dialoq can check.
CREATE OR REPLACE FUNCTION dialoq.needs_client(p_message_type text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format('messages of type ''%s'' are checked against a schema, which SQL alone cannot do; send them with a client of Dialoq',
        p_message_type)
$$;

-- The text of an XML body, without the declaration that names an encoding: UTF-16 by its mark or its first character,
-- else UTF-8.
CREATE OR REPLACE FUNCTION dialoq.xml_decoded(p_body bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_text text;
    v_low integer;
    v_start integer := 0;
    v_is_paired boolean;
BEGIN
    IF substr(p_body, 1, 2) = E'\\xfffe' THEN
        v_low := 0;
        v_start := 2;
    ELSIF substr(p_body, 1, 2) = E'\\xfeff' THEN
        v_low := 1;
        v_start := 2;
    ELSIF length(p_body) >= 2 AND get_byte(p_body, 1) = 0 THEN
        v_low := 0;
    ELSIF get_byte(p_body, 0) = 0 THEN
        v_low := 1;
    END IF;
    IF v_low IS NULL THEN
        v_text := convert_from(p_body, 'UTF8');
    ELSE
        IF length(p_body) % 2 = 1 THEN
            RAISE EXCEPTION 'it is UTF-16 cut in the middle of a character';
        END IF;
        SELECT coalesce(string_agg(CASE
                WHEN u.unit NOT BETWEEN 55296 AND 57343 THEN chr(u.unit)
                WHEN u.unit < 56320 AND u.next BETWEEN 56320 AND 57343
                    THEN chr(65536 + ((u.unit - 55296) << 10) + (u.next - 56320)) END, '' ORDER BY u.place), ''),
                bool_and(CASE
                    WHEN u.unit BETWEEN 55296 AND 56319 THEN (u.next BETWEEN 56320 AND 57343) IS TRUE
                    WHEN u.unit BETWEEN 56320 AND 57343 THEN (u.last BETWEEN 55296 AND 56319) IS TRUE
                    ELSE true END)
            INTO v_text, v_is_paired
        FROM (
            SELECT p.place, p.unit, lead(p.unit) OVER places AS next, lag(p.unit) OVER places AS last
            FROM (
                SELECT g.place,
                    get_byte(p_body, g.place + v_low) + 256 * get_byte(p_body, g.place + 1 - v_low) AS unit
                FROM generate_series(v_start, length(p_body) - 2, 2) AS g (place)
            ) AS p
            WINDOW places AS (ORDER BY p.place)
        ) AS u;
        IF NOT v_is_paired THEN
            RAISE EXCEPTION 'it is UTF-16 with an unpaired surrogate';
        END IF;
    END IF;
    RETURN regexp_replace(ltrim(v_text, E'\uFEFF'), '^<[?]xml[[:space:]][^>]*[?]>', '');
END $$;

-- The row that counts what an endpoint has sent, and the count; no row if it has sent nothing. The highest bucket comes first: dead
-- rows that an old snapshot keeps in the others are not read. A table with one row, because the planner puts only such a function into the
-- statement that calls it.
CREATE OR REPLACE FUNCTION dialoq.send_position(p_endpoint_id bigint) RETURNS TABLE (counter tid, sequence bigint)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT n.ctid, n.send_sequence FROM dialoq.send_counter AS n
    WHERE n.endpoint_id = p_endpoint_id ORDER BY n.bucket DESC LIMIT 1
$$;

-- What SENDs on a conversation write, if both sides speak, nothing is pending or has to wait, the other side's queue is on, the own one
-- keeps no copies, and the type may be sent; else no row. A table with one row, as send_position. The caller holds the group's lock.
-- Takes: the handle, its group, the name of the type, whether the body was checked, the version of the definitions (NULL: any)
CREATE OR REPLACE FUNCTION dialoq.plain_send(
    p_handle uuid, p_group uuid, p_message_type text, p_is_checked boolean, p_catalog_version bigint)
RETURNS TABLE (
    counter tid, sequence bigint, peer_id bigint, group_id uuid, rank_from_top smallint, queue_id integer, message_type_id integer,
    now timestamptz)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT s.counter, s.sequence, p.peer_id, p.group_id, p.rank_from_top, p.queue_id, y.message_type_id, b.now
    FROM (
        SELECT coalesce(b.manual_now, clock_timestamp()) AS now
        FROM dialoq.broker AS b
        WHERE b.is_broker_enabled AND (p_catalog_version IS NULL OR b.catalog_version = p_catalog_version)
        OFFSET 0
    ) AS b
    CROSS JOIN LATERAL (
        SELECT c.endpoint_id, c.conversation_id, c.is_initiator, c.service_contract_id
        FROM dialoq.conversation_endpoint AS c
        WHERE c.conversation_handle = p_handle AND c.conversation_group_id = p_group
            AND c.state = 'CO' AND (c.due_at IS NULL OR c.due_at > b.now)
            AND NOT EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = c.endpoint_id OFFSET 0)
            AND (SELECT f.message_type_id FROM dialoq.first_system(c.endpoint_id) AS f) IS NULL
            AND NOT (SELECT q.is_retention_enabled
                FROM dialoq.service AS s JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
                WHERE s.service_id = c.service_id)
        OFFSET 0
    ) AS e
    CROSS JOIN LATERAL dialoq.send_position(e.endpoint_id) AS s
    CROSS JOIN LATERAL (
        SELECT c.endpoint_id AS peer_id, c.conversation_group_id AS group_id,
            (10 - c.priority)::smallint AS rank_from_top, (
                SELECT q.queue_id FROM dialoq.service AS s JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
                WHERE s.service_id = c.service_id AND q.is_enqueue_enabled) AS queue_id
        FROM dialoq.conversation_endpoint AS c
        WHERE c.conversation_id = e.conversation_id AND c.is_initiator = NOT e.is_initiator AND c.state = 'CO'
            AND NOT c.is_system AND (SELECT f.message_type_id FROM dialoq.first_system(c.endpoint_id) AS f) IS NULL
        OFFSET 0
    ) AS p
    CROSS JOIN LATERAL (
        SELECT t.message_type_id
        FROM dialoq.message_type AS t
        JOIN dialoq.service_contract_message_usage AS u
            ON u.service_contract_id = e.service_contract_id AND u.message_type = t.name
        WHERE t.name = p_message_type AND NOT t.is_dropped AND (p_is_checked OR t.validation = 'N')
            AND CASE WHEN e.is_initiator THEN u.is_sent_by_initiator ELSE u.is_sent_by_target END
        OFFSET 0
    ) AS y
    WHERE p.queue_id IS NOT NULL
$$;

-- Counts a message. The caller holds the group's lock.
-- Gives: its number, from 0
CREATE OR REPLACE FUNCTION dialoq.count_sent(p_endpoint_id bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_sequence bigint;
BEGIN
    UPDATE dialoq.send_counter AS n SET send_sequence = p.sequence + 1, bucket = (p.sequence + 1) / 32
    FROM dialoq.send_position(p_endpoint_id) AS p WHERE n.ctid = p.counter
    RETURNING p.sequence INTO v_sequence;
    IF NOT FOUND THEN
        INSERT INTO dialoq.send_counter (endpoint_id, bucket, send_sequence) VALUES (p_endpoint_id, 0, 1);
        v_sequence := 0;
    END IF;
    RETURN v_sequence;
END $$;

-- Writes the row of the counter again, with the same count, after a change of the endpoint. A batch of SENDs reads an endpoint before
-- its lock, and starts over if the place of its counter has changed.
CREATE OR REPLACE FUNCTION dialoq.touch_counter(p_endpoint_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dialoq.send_counter AS n SET send_sequence = p.sequence
    FROM dialoq.send_position(p_endpoint_id) AS p WHERE n.ctid = p.counter;
END $$;

-- Sends a message of an endpoint, or gives the error and writes no row. The caller holds the group's lock. With p_is_check it
-- only checks, and needs no lock: none of the reasons for a refusal goes away again.
CREATE OR REPLACE FUNCTION dialoq.send_from(
    p_endpoint_id bigint, p_message_type_id integer, p_message_type text, p_body bytea, p_trace text, p_body_fault text,
    p_message_id uuid, OUT error_number integer, OUT error_message text, OUT notices text, p_is_check boolean DEFAULT false)
LANGUAGE plpgsql AS $$
DECLARE
    e record;
    v_usage record;
    v_now timestamptz;
    v_sequence bigint;
BEGIN
    SELECT c.conversation_handle, c.state, c.is_initiator, c.service_contract_id,
        q.name AS queue, q.is_enqueue_enabled, q.is_retention_enabled INTO e
    FROM dialoq.conversation_endpoint AS c
    JOIN dialoq.service AS s ON s.service_id = c.service_id
    LEFT JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    WHERE c.endpoint_id = p_endpoint_id;
    IF NOT FOUND THEN
        -- Its service was dropped while its first message was under way; the recheck erases it.
        error_number := 8426;
        error_message := dialoq.conversation_not_found((
            SELECT c.conversation_handle FROM dialoq.conversation_endpoint AS c WHERE c.endpoint_id = p_endpoint_id));
        RETURN;
    END IF;
    IF p_is_check THEN
        -- Only the holder of the group's lock applies pending messages to the row.
        SELECT n.state INTO e.state FROM dialoq.effective_endpoint AS n WHERE n.endpoint_id = p_endpoint_id;
    END IF;
    IF e.state NOT IN ('SO', 'CO') THEN
        error_number := 8429;
        error_message := format('conversation %s is %s; SEND needs STARTED_OUTBOUND or CONVERSING',
            e.conversation_handle, dialoq.state_name(e.state));
        RETURN;
    END IF;
    SELECT u.is_sent_by_initiator, u.is_sent_by_target INTO v_usage
    FROM dialoq.service_contract_message_usage AS u
    WHERE u.service_contract_id = e.service_contract_id AND u.message_type = p_message_type;
    IF NOT FOUND THEN
        error_number := 8431;
        error_message := format('message type ''%s'' is not in contract ''%s''', p_message_type, dialoq.contract_name(e.service_contract_id));
        RETURN;
    ELSIF e.is_initiator AND NOT v_usage.is_sent_by_initiator THEN
        error_number := 8432;
        error_message := format('contract ''%s'' lets only the target send ''%s''; this side is the initiator',
            dialoq.contract_name(e.service_contract_id), p_message_type);
        RETURN;
    ELSIF NOT e.is_initiator AND NOT v_usage.is_sent_by_target THEN
        error_number := 8434;
        error_message := format('contract ''%s'' lets only the initiator send ''%s''; this side is the target',
            dialoq.contract_name(e.service_contract_id), p_message_type);
        RETURN;
    END IF;
    IF NOT e.is_enqueue_enabled AND e.is_retention_enabled THEN
        error_number := 9618;
        error_message := format('queue ''%s'' of the sending service is disabled and retains messages, so the copy cannot be kept; ALTER QUEUE [%s] WITH STATUS = ON enables it',
            e.queue, e.queue);
        RETURN;
    END IF;
    IF p_is_check THEN
        RETURN;
    END IF;
    v_now := dialoq.current_time_utc();
    IF e.state <> 'CO' THEN
        UPDATE dialoq.conversation_endpoint AS c SET state = 'CO' WHERE c.endpoint_id = p_endpoint_id;
    END IF;
    v_sequence := dialoq.count_sent(p_endpoint_id);
    IF e.is_retention_enabled THEN
        PERFORM dialoq.retain_sent(p_endpoint_id, v_sequence, p_message_type_id, p_message_id, v_now, p_body, p_trace);
    END IF;
    notices := dialoq.dispatch(p_endpoint_id, v_sequence, p_message_type_id, p_message_id, p_body, p_trace, false, false,
        p_body_fault, v_now);
END $$;

-- Refuses a SEND without the group's lock, if no holder of it can change the refusal.
CREATE OR REPLACE FUNCTION dialoq.check_send(p_handle uuid, p_message_type text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_sent record;
BEGIN
    SELECT s.* INTO v_sent
    FROM dialoq.conversation_endpoint AS e
    CROSS JOIN LATERAL dialoq.send_from(e.endpoint_id, NULL, p_message_type, NULL, NULL, NULL, NULL, true) AS s
    WHERE e.conversation_handle = p_handle AND NOT e.is_system;
    IF v_sent.error_number IS NOT NULL THEN
        PERFORM dialoq.fail(v_sent.error_number, v_sent.error_message);
    END IF;
END $$;

-- The same for many messages, whose columns these are: the first that is refused refuses all.
CREATE OR REPLACE FUNCTION dialoq.check_each(
    p_handles uuid[], p_message_types text[], p_bodies bytea[], p_body_faults text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
    v_number integer;
    v_text text;
BEGIN
    FOR v_row IN
        SELECT i.place, i.handle, i.type_name, i.fault, e.endpoint_id, t.message_type_id,
            i.fault IS NULL AND length(i.body) > 0 AND t.validation IN ('V', 'S') AS needs_client
        FROM (
            SELECT u.handle, coalesce(u.type_name, 'DEFAULT') AS type_name, u.body, u.fault, u.place
            FROM unnest(p_handles, p_message_types, p_bodies, p_body_faults)
                WITH ORDINALITY AS u (handle, type_name, body, fault, place)
        ) AS i
        LEFT JOIN LATERAL (
            SELECT c.endpoint_id FROM dialoq.conversation_endpoint AS c
            WHERE c.conversation_handle = i.handle AND NOT c.is_system
            OFFSET 0
        ) AS e ON true
        LEFT JOIN dialoq.message_type AS t ON t.name = i.type_name AND NOT t.is_dropped
        ORDER BY i.place
    LOOP
        v_number := NULL;
        IF NOT dialoq.is_body_fault(v_row.fault) THEN
            v_number := 60005;
            v_text := dialoq.bad_body_fault(v_row.fault);
        ELSIF v_row.needs_client THEN
            v_number := 60026;
            v_text := dialoq.needs_client(v_row.type_name);
        ELSIF v_row.endpoint_id IS NULL THEN
            v_number := 8426;
            v_text := dialoq.conversation_not_found(v_row.handle);
        ELSIF v_row.message_type_id IS NULL THEN
            v_number := 8428;
            v_text := dialoq.name_not_found('message type', v_row.type_name);
        ELSE
            SELECT s.error_number, s.error_message INTO v_number, v_text
            FROM dialoq.send_from(v_row.endpoint_id, NULL, v_row.type_name, NULL, NULL, NULL, NULL, true) AS s;
        END IF;
        IF v_number IS NOT NULL THEN
            PERFORM dialoq.fail(v_number, format('message %s of %s: %s', v_row.place, cardinality(p_handles), v_text));
        END IF;
    END LOOP;
END $$;

-- Sends many messages one by one, after check_each; the caller holds the locks of their groups.
-- Gives: notices
CREATE OR REPLACE FUNCTION dialoq.send_in_order(
    p_handles uuid[], p_message_types text[], p_bodies bytea[], p_traces text[], p_body_faults text[], p_message_ids uuid[],
    p_catalog_version bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
    v_lock record;
    v_sent record;
    v_notices text;
BEGIN
    PERFORM dialoq.check_catalog_version(p_catalog_version);
    FOR v_row IN
        SELECT i.place, i.handle, coalesce(i.type_name, 'DEFAULT') AS type_name, t.message_type_id,
            CASE WHEN length(i.body) > 0 THEN i.body END AS body, i.trace, i.fault, coalesce(i.id, gen_random_uuid()) AS id
        FROM unnest(p_handles, p_message_types, p_bodies, p_traces, p_body_faults, p_message_ids)
            WITH ORDINALITY AS i (handle, type_name, body, trace, fault, id, place)
        LEFT JOIN dialoq.message_type AS t ON t.name = coalesce(i.type_name, 'DEFAULT') AND NOT t.is_dropped
        ORDER BY i.place
    LOOP
        SELECT * INTO v_lock FROM dialoq.lock_handle(v_row.handle, true);
        IF v_lock.endpoint_id IS NULL THEN
            PERFORM dialoq.fail(8426, format('message %s of %s: %s', v_row.place, cardinality(p_handles),
                dialoq.conversation_not_found(v_row.handle)));
        END IF;
        SELECT * INTO v_sent FROM dialoq.send_from(v_lock.endpoint_id, v_row.message_type_id, v_row.type_name, v_row.body,
            v_row.trace, coalesce(v_row.fault, dialoq.body_fault(v_row.message_type_id, v_row.body)), v_row.id);
        -- After 8429 an earlier message of the list has broken the conversation: this one is dropped, as one that is under way.
        IF v_sent.error_number <> 8429 THEN
            PERFORM dialoq.fail(v_sent.error_number,
                format('message %s of %s: %s', v_row.place, cardinality(p_handles), v_sent.error_message));
        END IF;
        v_notices := dialoq.add_notices(dialoq.add_notices(v_notices, v_lock.notices), v_sent.notices);
    END LOOP;
    RETURN v_notices;
END $$;

-- The name of a contract, '' if there is none.
CREATE OR REPLACE FUNCTION dialoq.contract_name(p_service_contract_id integer) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT c.name FROM dialoq.service_contract AS c WHERE c.service_contract_id = p_service_contract_id), '');
END $$;
