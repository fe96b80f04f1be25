-- The code and description in the body of an Error message, for plain SQL.
-- Takes: the body
-- Gives: code, description; both NULL if the body is none of an Error
-- Errors: none
-- Locks: none
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.error_of(p_message_body bytea, OUT code integer, OUT description text)
LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_text text := '';
    v_at integer := 2;
    v_unit integer;
    v_low integer;
    v_found text[];
BEGIN
    -- UTF-16LE with its byte-order mark. A description has at most 3000 characters.
    IF p_message_body IS NULL OR length(p_message_body) > 65536 OR length(p_message_body) % 2 <> 0
        OR substring(p_message_body FOR 2) <> E'\\xfffe'
    THEN
        RETURN;
    END IF;
    WHILE v_at < length(p_message_body) LOOP
        v_unit := get_byte(p_message_body, v_at) | (get_byte(p_message_body, v_at + 1) << 8);
        v_at := v_at + 2;
        IF v_unit BETWEEN 55296 AND 56319 AND v_at < length(p_message_body) THEN
            v_low := get_byte(p_message_body, v_at) | (get_byte(p_message_body, v_at + 1) << 8);
            v_unit := CASE WHEN v_low BETWEEN 56320 AND 57343 THEN 65536 + ((v_unit - 55296) << 10) + v_low - 56320 ELSE 65533 END;
            v_at := v_at + 2;
        END IF;
        v_text := v_text || chr(CASE WHEN v_unit = 0 OR v_unit BETWEEN 55296 AND 57343 THEN 65533 ELSE v_unit END);
    END LOOP;
    v_found := regexp_match(v_text, '<Code>(-?[0-9]{1,9})</Code><Description>(.*)</Description></Error>$');
    code := v_found[1]::integer;
    description := replace(replace(replace(replace(v_found[2], '&lt;', '<'), '&gt;', '>'), '&#x0D;', E'\r'), '&amp;', '&');
END $$;
