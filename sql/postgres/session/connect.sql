-- Readies a new session of Dialoq's: the verbs return notices instead of sending them, times are UTC, and the
-- broker's views are found without their schema, after everything of the user's. A user called dialoq has no schema of
-- that name: what it makes belongs in public, not among the broker's tables. A call outside a transaction runs READ COMMITTED
-- too, whatever the database's default: the verbs refuse every other level.
-- A host that is lost sends nothing more. The server gives up its sessions after half a minute, with the groups and readers'
-- places that they hold; the limit of Linux is two hours. A shorter limit that is set already stays.
-- One statement, because a session prepares it: it runs after each transaction with SQL of the user's.
-- Takes: nothing
-- Gives: nothing
SELECT pg_catalog.set_config('dialoq.client', '1', false), pg_catalog.set_config('TimeZone', 'UTC', false),
    pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
    pg_catalog.set_config('DateStyle', 'ISO', false), pg_catalog.set_config('standard_conforming_strings', 'on', false),
    pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ',
        nullif(nullif(CASE current_user
            WHEN 'dialoq' THEN pg_catalog.regexp_replace(pg_catalog.current_setting('search_path'), '"\$user"(, *|$)', '')
            ELSE pg_catalog.current_setting('search_path')
        END, ''), '""'), 'dialoq'), false),
    pg_catalog.set_config('tcp_keepalives_idle',
        least(nullif(pg_catalog.current_setting('tcp_keepalives_idle')::pg_catalog.int4, 0), 10)::pg_catalog.text, false),
    pg_catalog.set_config('tcp_keepalives_interval',
        least(nullif(pg_catalog.current_setting('tcp_keepalives_interval')::pg_catalog.int4, 0), 5)::pg_catalog.text, false),
    pg_catalog.set_config('tcp_keepalives_count',
        least(nullif(pg_catalog.current_setting('tcp_keepalives_count')::pg_catalog.int4, 0), 3)::pg_catalog.text, false),
    pg_catalog.set_config('tcp_user_timeout',
        least(nullif(pg_catalog.current_setting('tcp_user_timeout')::pg_catalog.int4, 0), 30000)::pg_catalog.text, false)
