-- The roles and their rights: dialoq_user may execute the verbs and read the views, dialoq_admin may also change
-- definitions; no other role has a right, and no role may touch a table. Roles belong to the whole server: another
-- database's installer may make them at the same moment.
DO $$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['dialoq_user', 'dialoq_admin'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = v_role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$$;

-- Says that the owner of the schema is to be trusted (install/schema_state.sql), where its login may say so.
DO $$
BEGIN
    IF NOT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user)
        AND NOT pg_has_role('dialoq_admin', 'MEMBER')
    THEN
        EXECUTE format('GRANT dialoq_admin TO %I', current_user);
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END
$$;

REVOKE ALL ON SCHEMA dialoq FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA dialoq FROM PUBLIC, dialoq_user, dialoq_admin;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA dialoq FROM PUBLIC, dialoq_user, dialoq_admin;
REVOKE ALL ON ALL ROUTINES IN SCHEMA dialoq FROM PUBLIC, dialoq_user, dialoq_admin;
GRANT USAGE ON SCHEMA dialoq TO dialoq_user, dialoq_admin;
GRANT SELECT ON dialoq.installed TO dialoq_user, dialoq_admin;

-- <each routine of dialoq_user> GRANT EXECUTE ON FUNCTION dialoq.NAME TO dialoq_user, dialoq_admin;
-- <each routine of dialoq_admin> GRANT EXECUTE ON FUNCTION dialoq.NAME TO dialoq_admin;

-- What each is for, for those who list them. record_installation marks the others, which no role may execute.
-- <each routine> COMMENT ON FUNCTION dialoq.NAME IS 'Dialoq: (client) TEXT';

DO $$
DECLARE
    v_name text;
BEGIN
    FOR v_name IN
        SELECT format('dialoq.%I', c.relname) FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'v'
            -- The owner of an object that install/clear.sql found to be foreign grants rights on it himself.
            AND c.oid <> ALL (coalesce(nullif(current_setting('dialoq.foreign_relations', true), ''), '{}')::oid[])
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO dialoq_user, dialoq_admin', v_name);
    END LOOP;
END
$$;

-- What install/clear.sql kept: rights of single roles, on what is still there.
DO $$
DECLARE
    v_statement text;
BEGIN
    FOR v_statement IN
        -- A routine that has other arguments now has its rights by its name.
        SELECT CASE WHEN n.routine IS NULL THEN k.statement ELSE replace(k.statement, k.routine, n.routine) END
        FROM jsonb_to_recordset(coalesce(nullif(current_setting('dialoq.kept_rights', true), ''), '[]')::jsonb)
            AS k (relation text, routine text, "column" text, statement text)
        LEFT JOIN LATERAL (
            SELECT min(p.oid::regprocedure::text) AS routine FROM pg_catalog.pg_proc AS p
            WHERE p.pronamespace = 'dialoq'::regnamespace AND starts_with(k.routine, format('dialoq.%I(', p.proname))
            HAVING count(*) = 1
        ) AS n ON to_regprocedure(k.routine) IS NULL
        WHERE to_regprocedure(k.routine) IS NOT NULL OR n.routine IS NOT NULL
            OR k."column" IS NULL AND to_regclass(k.relation) IS NOT NULL
            OR EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = to_regclass(k.relation) AND a.attname = k."column")
    LOOP
        EXECUTE v_statement;
    END LOOP;
END
$$;
