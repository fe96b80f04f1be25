-- Removes verbs and views, so that they can be made anew. Refused if an object of the user's is built on one of them.
-- What belongs to an extension or to the user stays: a user named dialoq gets what he makes into this schema without
-- meaning it. Ours is what record_installation has marked. If nothing is, because a restored copy has lost all comments, ours is what
-- has the name of a table, view or function of this version. What is not ours is noted for the rest of the transaction, so that it is
-- not taken for ours at its end.
-- Rights granted on single ones are noted too; roles.sql grants them again. Those of ALTER DEFAULT PRIVILEGES are not: an installation
-- before this one may not have revoked them, and a restored copy has them again.
-- Takes: nothing
-- Gives: nothing; dialoq.foreign_relations, dialoq.foreign_routines, dialoq.relations_by_default and dialoq.kept_rights are set
DO $$
DECLARE
    v_relations oid[] := '{}';
    v_routines oid[] := '{}';
    v_names text;
    v_relations_by_default oid[];
    -- Who may have made the objects: a dump is restored by the owner or by a superuser.
    v_makers oid[] := ARRAY(
        SELECT r.oid FROM pg_catalog.pg_roles AS r
        WHERE r.rolsuper OR r.oid = (SELECT n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'dialoq'));
    v_routines_by_default oid[];
    v_is_marked boolean := EXISTS (SELECT FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relname = 'installed'
            AND pg_catalog.obj_description(c.oid, 'pg_class') = 'Dialoq');
    v_relation_names text[] := ARRAY[
        -- <each table> 'NAME',
        -- <each view> 'NAME',
        'installed'];
    v_routine_names text[] := ARRAY[
        -- <each function> 'NAME',
        'record_installation'];
BEGIN
    IF v_is_marked THEN
        v_relations := ARRAY(SELECT c.oid FROM pg_catalog.pg_class AS c
            WHERE c.relnamespace = 'dialoq'::regnamespace
                AND pg_catalog.obj_description(c.oid, 'pg_class') IS DISTINCT FROM 'Dialoq');
        v_routines := ARRAY(SELECT p.oid FROM pg_catalog.pg_proc AS p
            WHERE p.pronamespace = 'dialoq'::regnamespace
                AND coalesce(pg_catalog.obj_description(p.oid, 'pg_proc'), '') !~ '^Dialoq($|: )');
    ELSE
        v_relations := ARRAY(SELECT c.oid FROM pg_catalog.pg_class AS c
            WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relname <> ALL (v_relation_names));
        v_routines := ARRAY(SELECT p.oid FROM pg_catalog.pg_proc AS p
            WHERE p.pronamespace = 'dialoq'::regnamespace AND p.proname <> ALL (v_routine_names));
    END IF;
    v_relations := v_relations || ARRAY(SELECT d.objid FROM pg_catalog.pg_depend AS d
        WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e');
    v_routines := v_routines || ARRAY(SELECT d.objid FROM pg_catalog.pg_depend AS d
        WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e');
    PERFORM pg_catalog.set_config('dialoq.foreign_relations', v_relations::text, true),
        pg_catalog.set_config('dialoq.foreign_routines', v_routines::text, true);

    -- Who has default privileges here, and rights on all of ours: on each view, or on a routine that is for no role. Each kind by itself.
    v_relations_by_default := ARRAY(
        SELECT a.grantee
        FROM pg_catalog.pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'v' AND c.oid <> ALL (v_relations)
        GROUP BY a.grantee
        HAVING count(DISTINCT c.oid) = (
            SELECT count(*) FROM pg_catalog.pg_class AS v
            WHERE v.relnamespace = 'dialoq'::regnamespace AND v.relkind = 'v' AND v.oid <> ALL (v_relations))
        INTERSECT
        SELECT a.grantee FROM pg_catalog.pg_default_acl AS f CROSS JOIN LATERAL aclexplode(f.defaclacl) AS a
        WHERE f.defaclobjtype = 'r' AND f.defaclrole = ANY (v_makers) AND f.defaclnamespace IN (0, 'dialoq'::regnamespace));
    v_routines_by_default := ARRAY(
        SELECT a.grantee
        FROM pg_catalog.pg_proc AS p CROSS JOIN LATERAL aclexplode(p.proacl) AS a
        WHERE p.pronamespace = 'dialoq'::regnamespace AND p.proname = 'record_installation'
        INTERSECT
        SELECT a.grantee FROM pg_catalog.pg_default_acl AS f CROSS JOIN LATERAL aclexplode(f.defaclacl) AS a
        WHERE f.defaclobjtype = 'f' AND f.defaclrole = ANY (v_makers) AND f.defaclnamespace IN (0, 'dialoq'::regnamespace));
    PERFORM pg_catalog.set_config('dialoq.relations_by_default', v_relations_by_default::text, true);
    PERFORM pg_catalog.set_config('dialoq.kept_rights', coalesce((
        SELECT jsonb_agg(jsonb_build_object('relation', k.relation, 'routine', k.routine, 'column', k.column_name, 'statement',
            format('GRANT %s%s ON %s TO %I%s', a.privilege_type, CASE WHEN k.column_name IS NOT NULL THEN format(' (%I)', k.column_name) END,
                coalesce(k.relation, 'ROUTINE ' || k.routine), g.rolname,
                CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)))
        FROM (
            SELECT format('dialoq.%I', c.relname) AS relation, NULL AS routine, NULL AS column_name, c.relacl AS acl,
                c.relowner AS owner
            FROM pg_catalog.pg_class AS c
            WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'v' AND c.oid <> ALL (v_relations)
            UNION ALL
            SELECT format('dialoq.%I', c.relname), NULL, t.attname, t.attacl, c.relowner
            FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS t ON t.attrelid = c.oid
            WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'v' AND c.oid <> ALL (v_relations)
            UNION ALL
            SELECT NULL, p.oid::regprocedure::text, NULL, p.proacl, p.proowner
            FROM pg_catalog.pg_proc AS p
            WHERE p.pronamespace = 'dialoq'::regnamespace AND p.oid <> ALL (v_routines)) AS k
        CROSS JOIN LATERAL aclexplode(k.acl) AS a
        JOIN pg_catalog.pg_roles AS g ON g.oid = a.grantee
        WHERE a.grantee <> k.owner AND g.rolname NOT IN ('dialoq_user', 'dialoq_admin')
            -- No other right on a view is of use but to write the tables behind it.
            AND a.privilege_type IN ('SELECT', 'EXECUTE')
            AND a.grantee <> ALL (CASE WHEN k.routine IS NULL THEN v_relations_by_default ELSE v_routines_by_default END))::text, '[]'), true);

    v_names := (
        SELECT string_agg(format('dialoq.%I', c.relname), ', ')
        FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'v' AND c.oid <> ALL (v_relations));
    IF v_names IS NOT NULL THEN
        EXECUTE 'DROP VIEW ' || v_names;
    END IF;
    v_names := (
        SELECT string_agg(p.oid::regprocedure::text, ', ')
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'dialoq'::regnamespace AND p.oid <> ALL (v_routines));
    IF v_names IS NOT NULL THEN
        EXECUTE 'DROP ROUTINE ' || v_names;
    END IF;
END
$$;
