-- Removes everything of Dialoq from a database and leaves the user's own tables. Refused if an object of the user's is
-- built on one of ours, and before anything is removed if an extension lives in our schema: a user named dialoq gets
-- extensions there without meaning it. The roles stay: other databases of the server may use them.
DO $$
DECLARE
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
