-- Removes verbs and views, so that they can be made anew. Refused if an object of the user's is built on one of them.
DO $$
DECLARE
    v_views text := (
        SELECT string_agg(format('dialoq.%I', c.relname), ', ')
        FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'v');
    v_routines text := (
        SELECT string_agg(p.oid::regprocedure::text, ', ')
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'dialoq'::regnamespace);
BEGIN
    IF v_views IS NOT NULL THEN
        EXECUTE 'DROP VIEW ' || v_views;
    END IF;
    IF v_routines IS NOT NULL THEN
        EXECUTE 'DROP ROUTINE ' || v_routines;
    END IF;
END
$$;
