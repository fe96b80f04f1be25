-- Answers commits only once they are on the disk; a server that waits for more, as for its replicas, goes on doing so.
-- Takes: nothing
-- Gives: nothing
SELECT pg_catalog.set_config(
    'synchronous_commit',
    CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END,
    false
);
