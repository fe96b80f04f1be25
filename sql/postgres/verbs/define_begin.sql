-- Begins a change of definitions. Another session that changes them waits until this transaction ends.
-- Takes: catalog_version: of the definitions that the change was computed from
-- Gives: is_current: whether they are still current; if not, read them and compute again
-- Errors: 60026
-- Locks: the broker's row
-- Called by: dialoq_admin
CREATE FUNCTION dialoq.define_begin(p_catalog_version bigint)
RETURNS TABLE (is_current boolean) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM dialoq.check_isolation();
    RETURN QUERY SELECT b.catalog_version = p_catalog_version FROM dialoq.broker AS b FOR UPDATE;
    -- A client gives up after 250 ms and tries again, so that other definitions do not wait for the holder of a conversation.
    IF dialoq.is_client_call() THEN
        PERFORM set_config('lock_timeout', '250ms', true);
    END IF;
END
$$;
