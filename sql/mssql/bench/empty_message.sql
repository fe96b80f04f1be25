-- Empties the rival's table; it is not measured.
-- Takes: nothing
-- Gives: nothing
TRUNCATE TABLE dbo.dialoq_bench_message;
