-- Begins a change of definitions: whoever else changes them waits until this transaction ends.
-- Takes: catalog_version: of the definitions that the change was computed from
-- Gives: is_current: whether they still stand; if not, read them and compute again
-- Errors: none of its own
-- Locks: the broker's row
-- Called by: dialoq_admin
CREATE FUNCTION dialoq.define_begin(p_catalog_version bigint)
RETURNS TABLE (is_current boolean) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT b.catalog_version = p_catalog_version FROM dialoq.broker AS b FOR UPDATE;
    -- A client lets go and tries again, so that other definitions need not wait for whoever holds a conversation.
    IF current_setting('dialoq.client', true) = '1' THEN
        PERFORM set_config('lock_timeout', '250ms', true);
    END IF;
END
$$;
