-- Empties the rival; nobody measures it.
-- Takes: nothing
-- Gives: nothing
TRUNCATE TABLE dbo.dialoq_bench_message;
