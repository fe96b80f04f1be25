-- Notes the installed version for every process that opens the broker, and marks what the installation has made, so that
-- it can be distinguished from what others put into the schema. What was there before is named by install/clear.sql.
-- Takes: schema_version, logic_hash, installed_by, and the version of the tables before the installation, 0 if there were none
-- Gives: nothing
-- Errors: 60011 if the tables had another version: the installation was printed for another database, or earlier
-- Locks: the row, and what is marked for the first time
CREATE FUNCTION dialoq.record_installation(
    p_schema_version integer, p_logic_hash text, p_installed_by text, p_version_before integer)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_relations oid[] := coalesce(nullif(current_setting('dialoq.foreign_relations', true), ''), '{}')::oid[];
    v_routines oid[] := coalesce(nullif(current_setting('dialoq.foreign_routines', true), ''), '{}')::oid[];
    v_made text;
    v_before integer := coalesce((SELECT i.schema_version FROM dialoq.installed AS i), 0);
BEGIN
    IF v_before <> p_version_before THEN
        PERFORM dialoq.fail(60011, format('the tables of schema dialoq have version %s, and this installation is for version %s; '
            'print it again for this database, or run dialoq install', v_before, p_version_before));
    END IF;
    INSERT INTO dialoq.installed (singleton, schema_version, logic_hash, installed_by, installed_at)
    VALUES (1, p_schema_version, p_logic_hash, p_installed_by, clock_timestamp())
    ON CONFLICT (singleton) DO UPDATE SET
        schema_version = excluded.schema_version, logic_hash = excluded.logic_hash,
        installed_by = excluded.installed_by, installed_at = excluded.installed_at;
    FOR v_made IN
        SELECT format('%s %s', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass)
        FROM pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind IN ('r', 'v') AND c.oid <> ALL (v_relations)
            AND obj_description(c.oid, 'pg_class') IS DISTINCT FROM 'Dialoq'
        UNION ALL
        SELECT format('ROUTINE %s', p.oid::regprocedure)
        FROM pg_proc AS p
        WHERE p.pronamespace = 'dialoq'::regnamespace AND p.oid <> ALL (v_routines)
            -- roles.sql says of each routine for users what it is for.
            AND coalesce(obj_description(p.oid, 'pg_proc'), '') NOT LIKE 'Dialoq: %'
    LOOP
        EXECUTE format('COMMENT ON %s IS %L', v_made, 'Dialoq');
    END LOOP;
END $$;
