-- Sends the notices of a commit to other processes.
-- Takes: notices separated by spaces
-- Gives: nothing
-- Errors: 60005
-- Locks: none of ours; NOTIFY serialises commits, so call it in a transaction of its own
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.notify_processes(p_notices text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A notice does not outlive a fall of the server anyway. A sync would keep the connection from claims, and the lock of the whole
    -- server from other notices.
    IF dialoq.is_client_call() OR dialoq.keeps_notices() THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF p_notices !~ '^[a-z](:[0-9A-Za-z-]{1,40})?( [a-z](:[0-9A-Za-z-]{1,40})?)*$' THEN
        PERFORM dialoq.fail(60005, format('the notices are ''%s''; they must be like ''q:1 c d:0'', with one space between',
            left(p_notices, 60)));
    END IF;
    PERFORM dialoq.send_notices(p_notices);
END $$;
