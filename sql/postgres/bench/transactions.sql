-- How many transactions the server has ended in this database so far, whoever began them.
-- Takes: nothing
-- Gives: transactions
SELECT pg_stat_get_db_xact_commit(d.oid) + pg_stat_get_db_xact_rollback(d.oid) AS transactions
FROM pg_database AS d WHERE d.datname = current_database();
