-- Notes which version stands, for every process that opens the broker.
-- Takes: schema_version, logic_hash, installed_by
-- Gives: nothing
-- Errors: none of its own
-- Locks: the row
CREATE FUNCTION dialoq.record_installation(p_schema_version integer, p_logic_hash text, p_installed_by text)
RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO dialoq.installed (singleton, schema_version, logic_hash, installed_by, installed_at)
    VALUES (1, p_schema_version, p_logic_hash, p_installed_by, clock_timestamp())
    ON CONFLICT (singleton) DO UPDATE SET
        schema_version = excluded.schema_version, logic_hash = excluded.logic_hash,
        installed_by = excluded.installed_by, installed_at = excluded.installed_at;
$$;
