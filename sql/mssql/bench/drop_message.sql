-- Removes the rival.
-- Takes: nothing
-- Gives: nothing
IF OBJECT_ID('dbo.dialoq_bench_message') IS NOT NULL DROP TABLE dbo.dialoq_bench_message;
