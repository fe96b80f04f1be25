-- Answers commits only once they are on the disk; a server that waits for more, as for its replicas, goes on doing so.
-- Takes: nothing
-- Gives: nothing
SELECT set_config(
    'synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
    false
);
