-- Errors, names of states, and texts of messages: UTF-16, XML, times.
-- Takes, Gives, Errors, Locks: see each function

-- Refuses. `p_number` is the number of the error, in SQLSTATE SB and its last three digits.
CREATE OR REPLACE FUNCTION dialoq.fail(p_number integer, p_message text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'SB' || right('00' || p_number::text, 3), MESSAGE = p_message, DETAIL = 'dialoq ' || p_number::text;
END $$;

-- The message of 8426.
CREATE OR REPLACE FUNCTION dialoq.conversation_not_found(p_handle uuid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('conversation handle %s was not found: it was never begun here, or it has ended', p_handle)
$$;

-- The message of 8436.
CREATE OR REPLACE FUNCTION dialoq.group_not_found(p_group uuid) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('conversation group %s was not found: it has no conversations here', p_group)
$$;

-- The message of a refusal of a service, contract or message type that does not exist.
CREATE OR REPLACE FUNCTION dialoq.name_not_found(p_kind text, p_name text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT format('%s ''%s'' was not found; names are compared byte by byte', p_kind, p_name)
$$;

-- The name of a state.
CREATE OR REPLACE FUNCTION dialoq.state_name(p_state text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_state
        WHEN 'SO' THEN 'STARTED_OUTBOUND' WHEN 'SI' THEN 'STARTED_INBOUND' WHEN 'CO' THEN 'CONVERSING'
        WHEN 'DI' THEN 'DISCONNECTED_INBOUND' WHEN 'DO' THEN 'DISCONNECTED_OUTBOUND' WHEN 'ER' THEN 'ERROR'
        ELSE 'CLOSED' END
$$;

-- A time as in messages and bodies.
CREATE OR REPLACE FUNCTION dialoq.time_text(p_time timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT to_char(p_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- UTF-16LE with its byte-order mark, the form of all bodies of system messages.
CREATE OR REPLACE FUNCTION dialoq.utf16(p_text text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_hex text;
BEGIN
    IF octet_length(p_text) = length(p_text) THEN
        RETURN E'\\xfffe'::bytea
            || decode(regexp_replace(encode(convert_to(p_text, 'UTF8'), 'hex'), '(..)', E'\\100', 'g'), 'hex');
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
    RETURN E'\\xfffe'::bytea || decode(v_hex, 'hex');
END $$;

-- One unit of UTF-16LE, in hexadecimal digits.
CREATE OR REPLACE FUNCTION dialoq.utf16_unit(p_unit integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT lpad(to_hex(((p_unit & 255) << 8) | (p_unit >> 8)), 4, '0')
$$;

-- Text between tags. A reader of XML takes a carriage return that is not escaped for the end of a line, and XML 1.0 has no way to
-- write the other control characters.
CREATE OR REPLACE FUNCTION dialoq.xml_text(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(
        replace(replace(replace(replace(p_text, '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), E'\r', '&#x0D;'),
        E'[\\u0001-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\ufffe\\uffff]', E'\uFFFD', 'g')
$$;

-- The body of an Error.
CREATE OR REPLACE FUNCTION dialoq.error_body(p_code integer, p_description text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT dialoq.utf16(
        '<?xml version="1.0"?><Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker/Error"><Code>' || p_code::text
        || '</Code><Description>' || dialoq.xml_text(p_description) || '</Description></Error>')
$$;

-- The body of an event notification.
CREATE OR REPLACE FUNCTION dialoq.event_body(p_event text, p_queue text, p_now timestamptz) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT dialoq.utf16(
        '<EVENT_INSTANCE><EventType>' || p_event || '</EventType><PostTime>' || dialoq.time_text(p_now)
        || '</PostTime><SchemaName>dbo</SchemaName><ObjectName>' || dialoq.xml_text(p_queue)
        || '</ObjectName><ObjectType>QUEUE</ObjectType></EVENT_INSTANCE>')
$$;
