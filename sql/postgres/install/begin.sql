-- Makes the schema and the table that says which version stands. The schema belongs to the installer: the owner of another
-- could put a function of his own before ours. One that this user has made before is taken over.
-- Takes: nothing
-- Gives: nothing
-- Errors: 60011; 60026 if the database is not of encoding UTF8
DO $$
DECLARE
    v_owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace AS n WHERE n.nspname = 'dialoq');
BEGIN
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION USING ERRCODE = 'SB026', DETAIL = 'dialoq 60026', MESSAGE = format(
            'database ''%s'' is of encoding %s, and the broker needs UTF8; make another one: CREATE DATABASE ... ENCODING ''UTF8'' '
            'TEMPLATE template0', current_database(), current_setting('server_encoding'));
    END IF;
    IF v_owner IS NULL THEN
        CREATE SCHEMA dialoq AUTHORIZATION CURRENT_USER;
    ELSIF v_owner <> current_user THEN
        RAISE EXCEPTION USING ERRCODE = 'SB011', DETAIL = 'dialoq 60011', MESSAGE = format(
            'schema dialoq belongs to role ''%s'' and not to ''%s'', who installs; nothing was installed; drop that schema, or '
            'install as its owner', v_owner, current_user);
    END IF;
END
$$;

CREATE TABLE dialoq.installed (
    singleton integer PRIMARY KEY CHECK (singleton = 1),
    -- How many of the schema scripts have been run.
    schema_version integer NOT NULL,
    -- Differs if a text of the verbs, views or roles does.
    logic_hash text NOT NULL,
    installed_by text NOT NULL,
    installed_at timestamptz NOT NULL
);
