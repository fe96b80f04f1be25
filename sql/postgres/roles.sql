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
-- It lacks the right, or an installation in another database has granted it at the same moment.
EXCEPTION WHEN insufficient_privilege OR unique_violation THEN
    NULL;
END
$$;

REVOKE ALL ON SCHEMA dialoq FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA dialoq FROM PUBLIC, dialoq_user, dialoq_admin CASCADE;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA dialoq FROM PUBLIC, dialoq_user, dialoq_admin CASCADE;
REVOKE ALL ON ALL ROUTINES IN SCHEMA dialoq FROM PUBLIC, dialoq_user, dialoq_admin CASCADE;

-- Rights that new objects have by ALTER DEFAULT PRIVILEGES of the installer: a member of dialoq_user whose login had all rights
-- on his tables could write the broker's, set its clock, and become a superuser by a trigger. Views, routines and what is not
-- marked yet are new. Of a table that is marked, a right to read it stays: an administrator may have granted it, unless
-- install/clear.sql found that it came by default.
DO $$
DECLARE
    v_foreign oid[] := coalesce(nullif(current_setting('dialoq.foreign_relations', true), ''), '{}')::oid[];
    v_foreign_routines oid[] := coalesce(nullif(current_setting('dialoq.foreign_routines', true), ''), '{}')::oid[];
    v_by_default oid[] := coalesce(nullif(current_setting('dialoq.relations_by_default', true), ''), '{}')::oid[];
    v_changes text := 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'
        || CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN ', MAINTAIN' ELSE '' END;
    v_statement text;
BEGIN
    FOR v_statement IN
        -- All grantees at once: one by one, 340 objects of 200 roles took more than ten minutes.
        SELECT format('REVOKE %s ON %s FROM %s CASCADE', o.rights, o.name, string_agg(DISTINCT quote_ident(g.rolname), ', '))
        FROM (
            SELECT 'CREATE' AS rights, 'SCHEMA dialoq' AS name, n.nspacl AS acl, n.nspowner AS owner, NULL::oid[] AS of_roles
            FROM pg_catalog.pg_namespace AS n WHERE n.oid = 'dialoq'::regnamespace
            UNION ALL
            SELECT CASE WHEN pg_catalog.obj_description(c.oid, 'pg_class') = 'Dialoq'
                    THEN v_changes ELSE 'ALL' END,
                format('dialoq.%I', c.relname), c.relacl, c.relowner, NULL
            FROM pg_catalog.pg_class AS c
            WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind IN ('r', 'v') AND c.oid <> ALL (v_foreign)
            UNION ALL
            SELECT 'INSERT, UPDATE, REFERENCES', format('dialoq.%I', c.relname), t.attacl, c.relowner, NULL
            FROM pg_catalog.pg_class AS c
            JOIN pg_catalog.pg_attribute AS t ON t.attrelid = c.oid AND t.attacl IS NOT NULL
            WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'r' AND c.oid <> ALL (v_foreign)
            UNION ALL
            SELECT 'SELECT', format('dialoq.%I', c.relname), c.relacl, c.relowner, v_by_default
            FROM pg_catalog.pg_class AS c
            WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'r' AND c.oid <> ALL (v_foreign)
            UNION ALL
            SELECT 'ALL', format('SEQUENCE dialoq.%I', c.relname), c.relacl, c.relowner, NULL
            FROM pg_catalog.pg_class AS c
            JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
            JOIN pg_catalog.pg_class AS t ON d.refclassid = 'pg_class'::regclass AND t.oid = d.refobjid
            WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'S' AND t.relkind = 'r' AND t.oid <> ALL (v_foreign)
            UNION ALL
            SELECT 'ALL', format('ROUTINE %s', p.oid::regprocedure), p.proacl, p.proowner, NULL
            FROM pg_catalog.pg_proc AS p
            WHERE p.pronamespace = 'dialoq'::regnamespace AND p.oid <> ALL (v_foreign_routines)) AS o
        CROSS JOIN LATERAL aclexplode(o.acl) AS a
        JOIN pg_catalog.pg_roles AS g ON g.oid = a.grantee
        WHERE a.grantee <> o.owner AND (o.of_roles IS NULL OR a.grantee = ANY (o.of_roles)) AND (o.rights = 'ALL' OR position(a.privilege_type IN o.rights) > 0)
        GROUP BY o.rights, o.name
    LOOP
        EXECUTE v_statement;
    END LOOP;
END
$$;

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
            WHERE to_regprocedure(k.routine) IS NULL
                AND p.pronamespace = 'dialoq'::regnamespace AND starts_with(k.routine, format('dialoq.%I(', p.proname))
            HAVING count(*) = 1
        ) AS n ON to_regprocedure(k.routine) IS NULL
        -- Of routines only those for users, which have their comments now.
        WHERE obj_description(to_regprocedure(coalesce(n.routine, k.routine)), 'pg_proc') LIKE 'Dialoq: %'
            OR k."column" IS NULL AND to_regclass(k.relation) IS NOT NULL
            OR EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = to_regclass(k.relation) AND a.attname = k."column")
    LOOP
        EXECUTE v_statement;
    END LOOP;
END
$$;
