-- Removes verbs and views, so that they can be made anew. Refused if an object of the user's is built on one of them.
-- What belongs to an extension stays: a user named dialoq gets extensions into this schema without meaning it.
DO $$
DECLARE
    v_views text := (
        SELECT string_agg(format('dialoq.%I', c.relname), ', ')
        FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'v'
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'));
    v_routines text := (
        SELECT string_agg(p.oid::regprocedure::text, ', ')
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'dialoq'::regnamespace
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d
                WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'));
BEGIN
    IF v_views IS NOT NULL THEN
        EXECUTE 'DROP VIEW ' || v_views;
    END IF;
    IF v_routines IS NOT NULL THEN
        EXECUTE 'DROP ROUTINE ' || v_routines;
    END IF;
END
$$;
