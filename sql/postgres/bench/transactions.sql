-- How many transactions of all sessions the server has ended in this database so far.
-- Takes: nothing
-- Gives: transactions
SELECT pg_stat_get_db_xact_commit(d.oid) + pg_stat_get_db_xact_rollback(d.oid) AS transactions
FROM pg_database AS d WHERE d.datname = current_database();
