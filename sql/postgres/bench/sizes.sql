-- How big the tables are that change with every message, indexes included.
-- Takes: nothing
-- Gives: bytes, dead_rows, of all of them together
SELECT sum(pg_total_relation_size(c.oid))::bigint AS bytes, sum(pg_stat_get_dead_tuples(c.oid))::bigint AS dead_rows
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'dialoq' AND c.relname IN ('queue_message', 'ready_group', 'conversation_endpoint', 'send_counter');
