-- Answers commits only once they are on the disk; a server that waits for more, as for its replicas, goes on doing so.
-- Takes: nothing
-- Gives: nothing
SELECT pg_catalog.set_config(
    'synchronous_commit',
    pg_catalog.regexp_replace(pg_catalog.current_setting('synchronous_commit'), '^off$', 'on'),
    false
);
