-- What every verb uses: errors, words for others, the clock, bodies of the system's messages, levels.
-- Takes: see each function
-- Gives: see each function

-- Refuses. `p_number` is the number of the error, in SQLSTATE SB and its last three digits.
CREATE OR REPLACE FUNCTION dialoq.fail(p_number integer, p_message text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'SB' || right('00' || p_number, 3), MESSAGE = p_message, DETAIL = 'dialoq ' || p_number;
END $$;

-- Tells other processes, in pieces that NOTIFY can carry.
CREATE OR REPLACE FUNCTION dialoq.send_notices(p_notices text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_rest text := p_notices;
    v_cut integer;
BEGIN
    WHILE length(v_rest) > 7000 LOOP
        v_cut := 7000 - strpos(reverse(left(v_rest, 7000)), ' ');
        PERFORM pg_notify('dialoq', left(v_rest, v_cut));
        v_rest := substr(v_rest, v_cut + 2);
    END LOOP;
    PERFORM pg_notify('dialoq', v_rest);
END $$;

-- Each word once; tells the others now, unless a client of Dialoq will do so after its commit.
CREATE OR REPLACE FUNCTION dialoq.publish_notices(p_notices text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_notices text := nullif(btrim(p_notices), '');
BEGIN
    IF strpos(v_notices, ' ') > 0 THEN
        SELECT string_agg(DISTINCT w.word, ' ') INTO v_notices
        FROM unnest(string_to_array(v_notices, ' ')) AS w (word) WHERE w.word <> '';
    END IF;
    IF v_notices IS NOT NULL AND current_setting('dialoq.client', true) IS DISTINCT FROM '1' THEN
        PERFORM dialoq.send_notices(v_notices);
    END IF;
    RETURN v_notices;
END $$;

-- The server's clock, or the tests'.
CREATE OR REPLACE FUNCTION dialoq.current_time_utc() RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT coalesce(b.manual_now, clock_timestamp()) FROM dialoq.broker AS b);
END $$;

-- A new id, version 7: ids ascend with time, so that rows keyed by them stay together and conversations of one group are
-- received from in the order in which they came to be.
CREATE OR REPLACE FUNCTION dialoq.next_id() RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
    v_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
    RETURN lpad(to_hex(v_us / 1000), 12, '0') || '7' || lpad(to_hex(v_us % 1000 * 4096 / 1000), 3, '0')
        || substr(gen_random_uuid()::text, 20);
END $$;

-- A moment as messages and bodies say it.
CREATE OR REPLACE FUNCTION dialoq.time_text(p_time timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT to_char(p_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- The word that says when something falls due.
CREATE OR REPLACE FUNCTION dialoq.due_notice(p_due timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'd:' || (extract(epoch FROM p_due) * 1000000)::bigint
$$;

-- UTF-16LE with its byte-order mark, as every body of the system's.
CREATE OR REPLACE FUNCTION dialoq.utf16(p_text text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_hex text;
BEGIN
    IF octet_length(p_text) = length(p_text) THEN
        RETURN '\xfffe'::bytea
            || decode(regexp_replace(encode(convert_to(p_text, 'UTF8'), 'hex'), '(..)', '\100', 'g'), 'hex');
    END IF;
    SELECT string_agg(
            CASE WHEN u.code < 65536 THEN dialoq.utf16_unit(u.code)
                ELSE dialoq.utf16_unit(55296 + ((u.code - 65536) >> 10))
                    || dialoq.utf16_unit(56320 + ((u.code - 65536) & 1023))
            END, '' ORDER BY u.place)
        INTO v_hex
    FROM (
        SELECT ascii(c.character) AS code, c.place
        FROM string_to_table(p_text, NULL) WITH ORDINALITY AS c (character, place)
    ) AS u;
    RETURN '\xfffe'::bytea || decode(v_hex, 'hex');
END $$;

-- One unit of UTF-16LE, in hexadecimal digits.
CREATE OR REPLACE FUNCTION dialoq.utf16_unit(p_unit integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT lpad(to_hex(((p_unit & 255) << 8) | (p_unit >> 8)), 4, '0')
$$;

-- Text between tags.
CREATE OR REPLACE FUNCTION dialoq.xml_text(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT replace(replace(replace(p_text, '&', '&amp;'), '<', '&lt;'), '>', '&gt;')
$$;

-- The body of an Error.
CREATE OR REPLACE FUNCTION dialoq.error_body(p_code integer, p_description text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT dialoq.utf16(
        '<?xml version="1.0"?><Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker/Error"><Code>' || p_code
        || '</Code><Description>'
        -- XML 1.0 has no way to write the other control characters.
        || regexp_replace(dialoq.xml_text(p_description), '[\u0001-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\ufffe\uffff]', U&'\FFFD', 'g')
        || '</Description></Error>')
$$;

-- The body of an event notification.
CREATE OR REPLACE FUNCTION dialoq.event_body(p_event text, p_queue text, p_now timestamptz) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT dialoq.utf16(
        '<EVENT_INSTANCE><EventType>' || p_event || '</EventType><PostTime>' || dialoq.time_text(p_now)
        || '</PostTime><SchemaName>dbo</SchemaName><ObjectName>' || dialoq.xml_text(p_queue)
        || '</ObjectName><ObjectType>QUEUE</ObjectType></EVENT_INSTANCE>')
$$;

-- The level of an endpoint: of the broker priorities that match, the most exact; the contract weighs most, the remote
-- service least.
CREATE OR REPLACE FUNCTION dialoq.level_for(p_contract_id integer, p_service_id integer, p_remote_service text) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((
        SELECT p.priority
        FROM dialoq.conversation_priority AS p
        WHERE (p.service_contract_id IS NULL OR p.service_contract_id = p_contract_id)
            AND (p.local_service_id IS NULL OR p.local_service_id = p_service_id)
            AND (p.remote_service_name IS NULL OR p.remote_service_name = p_remote_service)
        ORDER BY (p.service_contract_id IS NOT NULL)::integer * 4 + (p.local_service_id IS NOT NULL)::integer * 2
            + (p.remote_service_name IS NOT NULL)::integer DESC
        LIMIT 1), 5);
END $$;

-- The words of a state.
CREATE OR REPLACE FUNCTION dialoq.state_name(p_state text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_state
        WHEN 'SO' THEN 'STARTED_OUTBOUND' WHEN 'SI' THEN 'STARTED_INBOUND' WHEN 'CO' THEN 'CONVERSING'
        WHEN 'DI' THEN 'DISCONNECTED_INBOUND' WHEN 'DO' THEN 'DISCONNECTED_OUTBOUND' WHEN 'ER' THEN 'ERROR'
        ELSE 'CLOSED' END
$$;

-- When something next happens to an endpoint by itself. A conversation of the longest lifetime, 68 years, is not worth
-- an entry in the index for each of a million.
CREATE OR REPLACE FUNCTION dialoq.next_due(
    p_state text, p_lifetime timestamptz, p_dialog_timer timestamptz, p_security_timestamp timestamptz,
    p_closed_retention_s bigint, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_due timestamptz := least(
        CASE p_state
            WHEN 'CD' THEN coalesce(p_security_timestamp, p_lifetime + p_closed_retention_s * interval '1 second')
            WHEN 'ER' THEN NULL
            ELSE p_lifetime
        END, p_dialog_timer);
BEGIN
    RETURN CASE WHEN v_due < p_now + interval '7300 days' THEN v_due END;
END $$;
