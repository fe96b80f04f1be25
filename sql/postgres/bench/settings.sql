-- What the server is and how it keeps commits.
-- Takes: nothing
-- Gives: version, settings
SELECT 'PostgreSQL ' || current_setting('server_version') AS version,
    (SELECT string_agg(s.name || ' ' || current_setting(s.name), ', ' ORDER BY s.name)
        FROM pg_settings AS s
        WHERE s.name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'wal_level',
            'autovacuum', 'max_connections')) AS settings;
