-- How many batches of all sessions the server has run so far.
-- Takes: nothing
-- Gives: transactions
SELECT c.cntr_value AS transactions FROM sys.dm_os_performance_counters AS c WHERE c.counter_name = 'Batch Requests/sec';
