-- SEND of a text or JSON, for plain SQL: the body is its UTF-8.
-- Takes: the handle, the message type (NULL is DEFAULT), the text or JSON
-- Gives: message_id, notices
-- Errors: 8426, 8428, 8429, 8431, 8432, 8434, 9618, 60026
-- Locks: the conversation's group, waiting
-- For: plain SQL (send_text, send_json)
-- Called by: dialoq_user (send_text, send_json)

-- SEND of a text; the body is its UTF-8.
CREATE OR REPLACE FUNCTION dialoq.send_text(p_conversation_handle uuid, p_message_type_name text, p_message_body text)
RETURNS TABLE (message_id uuid, notices text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.message_id, s.notices
    FROM dialoq.send(p_conversation_handle, p_message_type_name, convert_to(p_message_body, 'UTF8')) AS s
$$;

-- SEND of JSON; the body is its text in UTF-8.
CREATE OR REPLACE FUNCTION dialoq.send_json(p_conversation_handle uuid, p_message_type_name text, p_message_body jsonb)
RETURNS TABLE (message_id uuid, notices text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.message_id, s.notices
    FROM dialoq.send(p_conversation_handle, p_message_type_name, convert_to(p_message_body::text, 'UTF8')) AS s
$$;
