-- Removes everything of Dialoq from a database and leaves the user's own tables. Refused if an object of the user's is
-- built on one of ours, and before anything is removed if an extension or an object of the user's lives in our schema: a
-- user named dialoq gets what he makes there without meaning it. Ours is what record_installation has marked. If nothing is, because
-- a restored copy has lost all comments, ours is what has the name of a table, view or function of this version. The roles stay:
-- other databases may use them.
DO $$
DECLARE
    v_strangers text;
    v_extensions text;
    v_remedies text;
    v_views text := (
        SELECT string_agg(format('dialoq.%I', c.relname), ', ')
        FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'v');
    v_routines text := (
        SELECT string_agg(p.oid::regprocedure::text, ', ')
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'dialoq'::regnamespace);
    v_tables text := (
        SELECT string_agg(format('dialoq.%I', c.relname), ', ')
        FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'r');
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
    SELECT string_agg(quote_ident(e.extname), ', ' ORDER BY e.extname),
        string_agg(CASE
            WHEN e.extrelocatable THEN format('ALTER EXTENSION %I SET SCHEMA public', e.extname)
            ELSE format('DROP EXTENSION %I, which cannot be moved, and CREATE EXTENSION %1$I SCHEMA public', e.extname)
        END, '; ' ORDER BY e.extname)
    INTO v_extensions, v_remedies
    FROM pg_catalog.pg_extension AS e
    WHERE e.extnamespace = 'dialoq'::regnamespace
        OR EXISTS (SELECT FROM pg_catalog.pg_depend AS d,
                pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) AS o
            WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                AND o.schema = 'dialoq');
    IF v_extensions IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'SB716', DETAIL = 'dialoq 3716', MESSAGE = format(
            'schema dialoq cannot be removed, for it holds objects of an extension: %s; nothing was removed; %s; then uninstall',
            v_extensions, v_remedies);
    END IF;
    SELECT string_agg(pg_catalog.pg_describe_object(o.class, o.oid, 0), ', ')
    INTO v_strangers
    FROM (
        SELECT 'pg_class'::regclass AS class, c.oid FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
            AND CASE WHEN v_is_marked THEN pg_catalog.obj_description(c.oid, 'pg_class') IS DISTINCT FROM 'Dialoq'
                ELSE c.relname <> ALL (v_relation_names) END
        UNION ALL
        SELECT 'pg_proc', p.oid FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'dialoq'::regnamespace
            AND CASE WHEN v_is_marked THEN coalesce(pg_catalog.obj_description(p.oid, 'pg_proc'), '') !~ '^Dialoq($|: )'
                ELSE p.proname <> ALL (v_routine_names) END
    ) AS o;
    IF v_strangers IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'SB716', DETAIL = 'dialoq 3716', MESSAGE = format(
            'schema dialoq cannot be removed, for it holds what is not the broker''s: %s; nothing was removed; move that with '
            'ALTER ... SET SCHEMA, then uninstall', v_strangers);
    END IF;
    IF v_views IS NOT NULL THEN
        EXECUTE 'DROP VIEW ' || v_views;
    END IF;
    IF v_routines IS NOT NULL THEN
        EXECUTE 'DROP ROUTINE ' || v_routines;
    END IF;
    IF v_tables IS NOT NULL THEN
        EXECUTE 'DROP TABLE ' || v_tables;
    END IF;
END
$$;
DROP SCHEMA dialoq;
