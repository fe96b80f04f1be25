-- Ends a change of definitions: delivers waiting messages that can now be delivered, updates the reason of the others, and
-- raises the version.
-- Takes: nothing
-- Gives: catalog_version, notices
-- Errors: none of its own
-- Locks: the groups of messages that can be delivered, without waiting
-- Called by: dialoq_admin
CREATE FUNCTION dialoq.define_end()
RETURNS TABLE (catalog_version bigint, notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_notices text := concat_ws(' ', dialoq.revisit_outboxes(), dialoq.end_holds(NULL, true));
BEGIN
    RETURN QUERY
    -- Clients compare only versions. So each definition gets a version of its own, also after the database was restored from a copy or
    -- installed again.
    -- Only break_notification counts by one, because its transaction goes on with the version of before.
    UPDATE dialoq.broker AS b
    SET catalog_version = greatest(b.catalog_version + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    RETURNING b.catalog_version, dialoq.publish_notices(concat_ws(' ', 'c', v_notices));
END
$$;
