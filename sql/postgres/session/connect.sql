-- Readies a new session of Dialoq's: the verbs return notices to marked calls (session/call.sql) instead of sending them, times are UTC, and the
-- broker's views are found without their schema, after everything of the user's. A user called dialoq has no schema of
-- that name: what it makes belongs in public, not among the broker's tables. A call outside a transaction runs READ COMMITTED
-- too, whatever the database's default: the verbs refuse every other level.
-- A host that is lost sends nothing more. The server gives up its sessions after half a minute, with the groups and readers'
-- places that they hold; the limit of Linux is two hours. A shorter limit that is set already stays.
-- One statement, because a session prepares it: it runs after each transaction with SQL of the user's. It names every operator
-- with its schema, or has functions in place of NULLIF and CASE: these look their operator up in the user's search path. It frees
-- the locks of the session too, which a new session does not have: as a statement of its own that took the server 15 us.
-- Takes: the level of synchronous_commit for {durability}
-- Gives: session: what names this session among those of all servers
SELECT pg_catalog.concat(pg_catalog.pg_backend_pid(), ' ',
        pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())) AS session,
    pg_catalog.pg_advisory_unlock_all(), pg_catalog.set_config('synchronous_commit', {durability}, false),
    pg_catalog.set_config('dialoq.client', 'marked', false), pg_catalog.set_config('TimeZone', 'UTC', false),
    pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
    -- As call_after_begin.sql needs it.
    pg_catalog.set_config('default_transaction_deferrable', 'off', false),
    pg_catalog.set_config('DateStyle', 'ISO', false), pg_catalog.set_config('standard_conforming_strings', 'on', false),
    -- An empty path is '' or '""'. $user may stand anywhere in a list, with quotes or without.
    pg_catalog.set_config('search_path', pg_catalog.regexp_replace(pg_catalog.concat(
        CASE WHEN current_user OPERATOR(pg_catalog.=) 'dialoq'
            THEN pg_catalog.regexp_replace(pg_catalog.current_setting('search_path'), '(^|,) *"?[$]user"? *(?=,|$)', '', 'g')
            ELSE pg_catalog.current_setting('search_path')
        END, ', dialoq'), '^(""|), *', ''), false),
    -- 0 is no limit.
    pg_catalog.set_config('tcp_keepalives_idle', least(10,
        pg_catalog.regexp_replace(pg_catalog.current_setting('tcp_keepalives_idle'), '^0$', '10')::pg_catalog.int4)::pg_catalog.text, false),
    pg_catalog.set_config('tcp_keepalives_interval', least(5,
        pg_catalog.regexp_replace(pg_catalog.current_setting('tcp_keepalives_interval'), '^0$', '5')::pg_catalog.int4)::pg_catalog.text, false),
    pg_catalog.set_config('tcp_keepalives_count', least(3,
        pg_catalog.regexp_replace(pg_catalog.current_setting('tcp_keepalives_count'), '^0$', '3')::pg_catalog.int4)::pg_catalog.text, false),
    pg_catalog.set_config('tcp_user_timeout', least(30000,
        pg_catalog.regexp_replace(pg_catalog.current_setting('tcp_user_timeout'), '^0$', '30000')::pg_catalog.int4)::pg_catalog.text, false)
