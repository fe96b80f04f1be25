-- How many batches the server has run so far, whoever sent them.
-- Takes: nothing
-- Gives: transactions
SELECT c.cntr_value AS transactions FROM sys.dm_os_performance_counters AS c WHERE c.counter_name = 'Batch Requests/sec';
