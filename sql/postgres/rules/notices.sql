-- Notices: what a commit has changed, for other processes, separated by spaces. 'q:7': queue 7 has messages. 'd:' with a time in
-- microseconds: an event is due then. 'c': definitions have changed.
-- Takes, Gives, Errors, Locks: see each function

-- Whether a client of Dialoq called the verb, which sends the notices after its commit. In a session of Dialoq's the user's own
-- SQL may call a verb too, or have a trigger that does: their answer is not read, so only a call with this mark is the client's. A
-- client of an earlier version marks no call, and says 1.
CREATE OR REPLACE FUNCTION dialoq.is_client_call() RETURNS boolean
LANGUAGE sql AS $$
    SELECT CASE current_setting('dialoq.client', true)
        -- While a deferred trigger runs at the end of a transaction, there may be no query.
        WHEN 'marked' THEN coalesce(right(current_query(), 12) = '/* client */', false)
        WHEN '1' THEN true
        ELSE false END
$$;

-- Whether a session of plain SQL sends its notices itself, after its commits: it has SET dialoq.notify = 'off'.
CREATE OR REPLACE FUNCTION dialoq.keeps_notices() RETURNS boolean
LANGUAGE sql AS $$
    SELECT coalesce(current_setting('dialoq.notify', true), '') IN ('off', 'false', 'no', '0')
$$;

-- Sends notices to other processes, in pieces that NOTIFY can carry.
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

-- Each notice once. Sends them in this transaction, unless the caller is a client of Dialoq or keeps them, and sends them after its commit.
CREATE OR REPLACE FUNCTION dialoq.publish_notices(p_notices text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    v_notices text := nullif(btrim(p_notices), '');
BEGIN
    IF strpos(v_notices, ' ') > 0 THEN
        SELECT string_agg(DISTINCT w.notice, ' ') INTO v_notices
        FROM unnest(string_to_array(v_notices, ' ')) AS w (notice) WHERE w.notice <> '';
    END IF;
    IF v_notices IS NOT NULL AND NOT dialoq.is_client_call() AND NOT dialoq.keeps_notices() THEN
        PERFORM dialoq.send_notices(v_notices);
    END IF;
    RETURN v_notices;
END $$;

-- Adds a notice that is not among the others yet: a million conversations are mostly of one queue.
CREATE FUNCTION dialoq.add_notices(p_notices text, p_more text)
RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_more IS NULL OR strpos(' ' || coalesce(p_notices, '') || ' ', ' ' || p_more || ' ') > 0 THEN
        RETURN p_notices;
    END IF;
    RETURN concat_ws(' ', p_notices, p_more);
END
$$;

-- Each notice once.
CREATE OR REPLACE FUNCTION dialoq.distinct_notices(p_notices text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(DISTINCT w.notice, ' ') FROM unnest(string_to_array(p_notices, ' ')) AS w (notice) WHERE w.notice <> ''
$$;

-- The notice of the time of the next event. Not IMMUTABLE: EXTRACT of a time with a zone is not, and then the server would plan
-- this at each call, which takes 20 us, and not make it part of the expression that calls it.
CREATE OR REPLACE FUNCTION dialoq.due_notice(p_due timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT 'd:' || (extract(epoch FROM p_due) * 1000000)::bigint::text
$$;
