-- Begins a change of definitions. Another session that changes them waits until this transaction ends.
-- Takes: catalog_version: of the definitions that the change was computed from
-- Gives: is_current: whether they are still current; if not, read them and compute again; now_at: the time from which schedules count
-- Errors: 60018 if another transaction keeps the lock for 15 s, or for 30 if a third one waits for it too; 60026
-- Locks: the broker's row, waiting so long; plain SQL as long as its lock_timeout says
-- Called by: dialoq_admin
CREATE FUNCTION dialoq.define_begin(p_catalog_version bigint)
RETURNS TABLE (is_current boolean, now_at timestamptz) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    v_timeout text := current_setting('lock_timeout');
    -- A client would be refused at once by a short limit of its role, where it tried again before.
    v_limit text := CASE WHEN v_timeout = '0' OR dialoq.is_client_call()
        THEN format('%ss', dialoq.holder_check_interval()::integer / 1000) ELSE v_timeout END;
BEGIN
    PERFORM dialoq.check_isolation();
    SELECT b.catalog_version = p_catalog_version INTO is_current FROM dialoq.broker AS b FOR UPDATE SKIP LOCKED;
    -- The holder may be a count_rollback of plain SQL whose transaction stays open. The number is not that of a lock timeout, after which
    -- a client would try again without end.
    IF NOT FOUND THEN
        BEGIN
            PERFORM set_config('lock_timeout', v_limit, true);
            SELECT b.catalog_version = p_catalog_version INTO is_current FROM dialoq.broker AS b FOR UPDATE;
            PERFORM set_config('lock_timeout', v_timeout, true);
        EXCEPTION WHEN lock_not_available THEN
            PERFORM dialoq.fail(60018, format('definitions could not be locked within %s: %s changes them, counts a rollback or has '
                'ended an event notification; end its transaction, then run the definition again', v_limit, dialoq.definition_holders()));
        END;
    END IF;
    now_at := dialoq.current_time_utc();
    RETURN NEXT;
    -- A client gives up after 250 ms and tries again, so that other definitions do not wait for the holder of a conversation.
    IF dialoq.is_client_call() THEN
        PERFORM set_config('lock_timeout', '250ms', true);
    END IF;
END
$$;
